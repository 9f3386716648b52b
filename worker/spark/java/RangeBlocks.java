package icefloe.source;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The blocks of the ranges of a Spark task, or of a read without one, whose task is null. The thread
 * that takes them may still run when the Spark task ends.
 */
final class RangeBlocks implements Iterator, TaskCompletionListener {
    private static final long POLL_MS = 200L;

    private final BlockReader reader;
    private final TaskContext task;
    private final long deadlineMs;
    private final boolean mayPassEnds;
    private final HashMap positions = new HashMap();
    private final HashMap ends = new HashMap();
    private final HashMap starts = new HashMap();
    private final ArrayList topics = new ArrayList();
    private final Block block;
    private IdleConsumers.Held held;
    private ConsumerRecords polled;
    private Iterator partitions;
    private Iterator records;
    private long end;
    private int topic;
    private Object next;
    private boolean isComplete;
    /** Without a new record for this time, the read asks the broker where the log ends. */
    private final long stalledMs;
    private long progressMs = System.currentTimeMillis();

    /**
     * @param mayPassEnds whether records after the end of a range are taken if the consumer has
     *     returned them with records before it
     */
    RangeBlocks(
        BlockReader reader, List ranges, TaskContext task, long deadlineMs, boolean mayPassEnds
    ) {
        this.reader = reader;
        this.task = task;
        this.deadlineMs = deadlineMs;
        this.mayPassEnds = mayPassEnds;
        stalledMs = Long.parseLong(String.valueOf(reader.properties.get("request.timeout.ms")));
        block = new Block(reader);
        for (int i = 0; i < ranges.size(); i++) {
            OffsetRange range = (OffsetRange) ranges.get(i);
            TopicPartition place = new TopicPartition(range.topic, range.partition);
            starts.put(place, Long.valueOf(range.start));
            ends.put(place, Long.valueOf(range.end));
            if (!topics.contains(range.topic)) {
                topics.add(range.topic);
            }
        }
        if (task != null) {
            task.addTaskCompletionListener(this);
        }
    }

    public synchronized boolean hasNext() {
        if (next == null && !isComplete) {
            next = read();
        }
        return next != null;
    }

    public synchronized Object next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Object taken = next;
        next = null;
        return taken;
    }

    public synchronized void onTaskCompletion(TaskContext context) {
        release(ends.isEmpty() && !context.isFailed());
    }

    /** Whether all blocks were taken, to the ends of the ranges. */
    synchronized boolean isRead() {
        return isComplete && next == null && ends.isEmpty();
    }

    /** Where the ranges that were read have ended: TopicPartition to Long. */
    synchronized HashMap positions() {
        return positions;
    }

    synchronized void release(boolean isUsable) {
        isComplete = true;
        if (held != null) {
            IdleConsumers.give(held, isUsable);
            held = null;
        }
    }

    private Object read() {
        if (held == null) {
            open();
        }
        while (true) {
            while (records != null && records.hasNext()) {
                ConsumerRecord record = (ConsumerRecord) records.next();
                if (record.offset() >= end && !mayPassEnds) {
                    records = null;
                } else if (!block.hasRoom(record)) {
                    Object full = block.taken(topics);
                    block.add(record, topic);
                    return full;
                } else {
                    block.add(record, topic);
                    if (block.isFull()) {
                        return block.taken(topics);
                    }
                }
            }
            if (!nextPartition() && !poll()) {
                isComplete = true;
                return block.count == 0 ? null : block.taken(topics);
            }
        }
    }

    private void open() {
        held = IdleConsumers.take(reader.properties);
        KafkaConsumer consumer = held.consumer;
        consumer.assign(starts.keySet());
        consumer.resume(starts.keySet());
        for (Iterator each = starts.entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            TopicPartition place = (TopicPartition) entry.getKey();
            consumer.seek(place, ((Long) entry.getValue()).longValue());
        }
    }

    /** Begin with the records of the next partition of the last poll, if it has one. */
    private boolean nextPartition() {
        while (partitions != null && partitions.hasNext()) {
            TopicPartition place = (TopicPartition) partitions.next();
            Long last = (Long) ends.get(place);
            if (last != null) {
                end = last.longValue();
                topic = topics.indexOf(place.topic());
                block.partition = place.partition();
                records = polled.records(place).iterator();
                return true;
            }
        }
        return false;
    }

    /** Get more records; return false where all ranges were read. */
    private boolean poll() {
        KafkaConsumer consumer = held.consumer;
        while (true) {
            if (polled != null) {
                endRanges(consumer);
            }
            if (ends.isEmpty()) {
                return false;
            }
            if (task != null && task.isInterrupted()) {
                throw new TaskKilledException("the batch was cancelled");
            }
            if (System.currentTimeMillis() > deadlineMs) {
                return false;
            }
            polled = consumer.poll(Duration.ofMillis(POLL_MS));
            if (!polled.isEmpty()) {
                progressMs = System.currentTimeMillis();
                partitions = polled.partitions().iterator();
                return true;
            }
            if (System.currentTimeMillis() - progressMs > stalledMs) {
                checkEnds(consumer);
                progressMs = System.currentTimeMillis();
            }
        }
    }

    /** A range ends at a position: there may be no record at its last offsets. */
    private void endRanges(KafkaConsumer consumer) {
        ArrayList ended = new ArrayList();
        for (Iterator each = ends.entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            TopicPartition place = (TopicPartition) entry.getKey();
            long position = consumer.position(place);
            if (position >= ((Long) entry.getValue()).longValue()) {
                positions.put(place, mayPassEnds ? Long.valueOf(position) : entry.getValue());
                ended.add(place);
                each.remove();
            }
        }
        if (!ended.isEmpty()) {
            consumer.pause(ended);
        }
    }

    private void checkEnds(KafkaConsumer consumer) {
        Map logs = consumer.endOffsets(ends.keySet());
        for (Iterator each = ends.entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            Long logEnd = (Long) logs.get(entry.getKey());
            if (logEnd.longValue() < ((Long) entry.getValue()).longValue()) {
                throw new IllegalStateException(
                    "Some data may have been lost: the log of " + entry.getKey() + " ends at "
                    + logEnd + ", before " + entry.getValue()
                );
            }
        }
    }
}
