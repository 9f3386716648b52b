package icefloe.source;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteBufferDeserializer;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Reads ranges of Kafka offsets into blocks: rows that each hold the columns of many records.
 *
 * Spark's own source makes a row of each record, and Spark then makes Arrow vectors of rows, value by
 * value. This reader copies the bytes of a record to the ends of columns. Their layout is that of
 * Arrow arrays, so Python uses them as they are (worker/batch/record_blocks.py).
 *
 * The worker compiles this file with Spark's compiler, Janino, which does not support lambdas.
 */
public final class RecordBlocks {
    static final long POLL_MS = 200L;
    /** Consumers that no read has used for this time are closed. */
    static final long IDLE_MS = 60000L;
    /** A column of Arrow has 32-bit offsets. */
    static final int COLUMN_BYTES_MAX = Integer.MAX_VALUE - 1024;
    /** Larger arrays are not kept for the next block. */
    static final int KEPT_BYTES_MAX = 64 << 20;

    private static final StructType SCHEMA = schema();
    private static final byte[] PADDING = new byte[8];

    private final SparkSession spark;
    private final Reader reader;

    /**
     * @param properties of the consumers; deserializers are added
     * @param blockRows most records of a block
     * @param blockBytes a block ends with the record that reaches this size
     */
    public RecordBlocks(
        SparkSession spark, Map properties, int blockRows, int blockBytes, boolean keys,
        boolean headers
    ) {
        this.spark = spark;
        HashMap all = new HashMap(properties);
        all.put("key.deserializer", ByteBufferDeserializer.class.getName());
        all.put("value.deserializer", ByteBufferDeserializer.class.getName());
        reader = new Reader(all, blockRows, blockBytes, keys, headers);
    }

    /**
     * Return the blocks of a read as a Dataset; nothing is read before an action.
     *
     * @param plan a line for each Spark task, with its ranges (partition, start, end, topic, separated
     *     by spaces), separated by commas
     */
    public Object rows(String plan) {
        ArrayList tasks = new ArrayList();
        String[] lines = plan.split("\n", -1);
        for (int i = 0; i < lines.length; i++) {
            ArrayList ranges = new ArrayList();
            setRanges(ranges, lines[i]);
            tasks.add(ranges);
        }
        return rows(tasks);
    }

    /** Return the ranges of one Spark task, to be set later. */
    public ArrayList emptyRanges() {
        return new ArrayList();
    }

    /**
     * Return the blocks of one Spark task as a Dataset, so that Spark can plan before the ranges are set.
     *
     * Spark takes the ranges when the first job on the Dataset starts.
     */
    public Object rowsOf(ArrayList ranges) {
        ArrayList tasks = new ArrayList();
        tasks.add(ranges);
        return rows(tasks);
    }

    /** Set the ranges of a Spark task; the text is a line of a plan. */
    public void setRanges(ArrayList ranges, String line) {
        String[] texts = line.isEmpty() ? new String[0] : line.split(",");
        ranges.clear();
        for (int j = 0; j < texts.length; j++) {
            ranges.add(new Range(texts[j].split(" ")));
        }
    }

    /**
     * Read ranges with few records in the calling thread, without a Spark task.
     *
     * Return the blocks as text (Base64): of each block the number of records, then each column as its
     * length in bytes, or -1 without the column, and its bytes, which begin and end at a multiple of 8.
     *
     * @param line of a plan
     * @param bytesMax return null where the columns have more bytes
     * @param timeoutMs return null where the records are not there after this time
     */
    public String readNow(String line, int bytesMax, long timeoutMs) throws IOException {
        ArrayList ranges = new ArrayList();
        setRanges(ranges, line);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        Blocks blocks = new Blocks(reader, ranges, null, System.currentTimeMillis() + timeoutMs);
        try {
            while (blocks.hasNext() && bytes.size() <= bytesMax) {
                write(out, (GenericInternalRow) blocks.next());
            }
            if (!blocks.isRead() || bytes.size() > bytesMax) {
                return null;
            }
            return Base64.getEncoder().encodeToString(bytes.toByteArray());
        } finally {
            blocks.release(blocks.isRead());
        }
    }

    private static void write(DataOutputStream out, GenericInternalRow row) throws IOException {
        out.writeLong(row.getInt(0));
        for (int i = 1; i < row.numFields(); i++) {
            byte[] column = null;
            if (i == 1) {
                column = row.getUTF8String(i).getBytes();
            } else if (!row.isNullAt(i)) {
                column = row.getBinary(i);
            }
            out.writeLong(column == null ? -1L : column.length);
            if (column != null) {
                out.write(column);
                out.write(PADDING, 0, (8 - column.length % 8) % 8);
            }
        }
    }

    private Object rows(ArrayList tasks) {
        JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
        return spark.internalCreateDataFrame(
            context.parallelize(tasks, tasks.size()).mapPartitions(reader).rdd(), SCHEMA, false
        );
    }

    private static StructType schema() {
        StructType type = new StructType()
            .add("count", DataTypes.IntegerType)
            .add("topics", DataTypes.StringType);
        String[] columns = {
            "topic", "partition", "offset", "timestamp",
            "value", "value_ends", "value_valid",
            "key", "key_ends", "key_valid",
            "header_ends", "header_key", "header_key_ends",
            "header_value", "header_value_ends", "header_value_valid"
        };
        for (int i = 0; i < columns.length; i++) {
            type = type.add(columns[i], DataTypes.BinaryType);
        }
        return type;
    }

    /** The records of a partition from start (inclusive) to end (exclusive). */
    static final class Range implements Serializable {
        final int partition;
        final long start;
        final long end;
        final String topic;

        Range(String[] parts) {
            partition = Integer.parseInt(parts[0]);
            start = Long.parseLong(parts[1]);
            end = Long.parseLong(parts[2]);
            topic = parts[3];
        }
    }

    /** What a Spark task does. */
    static final class Reader implements FlatMapFunction, Serializable {
        final HashMap properties;
        final int blockRows;
        final int blockBytes;
        final boolean keys;
        final boolean headers;

        Reader(HashMap properties, int blockRows, int blockBytes, boolean keys, boolean headers) {
            this.properties = properties;
            this.blockRows = blockRows;
            this.blockBytes = blockBytes;
            this.keys = keys;
            this.headers = headers;
        }

        public Iterator call(Object ranges) {
            List list = (List) ((Iterator) ranges).next();
            return new Blocks(this, list, TaskContext.get(), Long.MAX_VALUE);
        }
    }

    /**
     * The blocks of a Spark task, or of a read without one, whose task is null. The thread that takes
     * them may still run when the Spark task ends.
     */
    static final class Blocks implements Iterator, TaskCompletionListener {
        private final Reader reader;
        private final TaskContext task;
        private final long deadlineMs;
        private final HashMap ends = new HashMap();
        private final HashMap starts = new HashMap();
        private final ArrayList topics = new ArrayList();
        private final Block block;
        private Consumers.Held held;
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

        Blocks(Reader reader, List ranges, TaskContext task, long deadlineMs) {
            this.reader = reader;
            this.task = task;
            this.deadlineMs = deadlineMs;
            stalledMs = Long.parseLong(String.valueOf(reader.properties.get("request.timeout.ms")));
            block = new Block(reader);
            for (int i = 0; i < ranges.size(); i++) {
                Range range = (Range) ranges.get(i);
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

        synchronized void release(boolean isUsable) {
            isComplete = true;
            if (held != null) {
                Consumers.give(held, isUsable);
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
                    if (record.offset() >= end) {
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
            held = Consumers.take(reader.properties);
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
                if (consumer.position(place) >= ((Long) entry.getValue()).longValue()) {
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

    /** Columns of the records that were read last. */
    static final class Block {
        private final int rowsMax;
        private final int bytesMax;
        private final long[] offsets;
        private final long[] timestamps;
        private final int[] partitions;
        private final int[] topicNumbers;
        private final Column values = new Column();
        private final Column keys;
        private final Column headerKeys;
        private final Column headerValues;
        private final Ints headerEnds;
        private boolean hasTopics;
        int partition;
        int count;

        Block(Reader reader) {
            rowsMax = reader.blockRows;
            bytesMax = reader.blockBytes;
            offsets = new long[rowsMax];
            timestamps = new long[rowsMax];
            partitions = new int[rowsMax];
            topicNumbers = new int[rowsMax];
            keys = reader.keys ? new Column() : null;
            headerKeys = reader.headers ? new Column() : null;
            headerValues = reader.headers ? new Column() : null;
            headerEnds = reader.headers ? new Ints() : null;
        }

        boolean isFull() {
            long bytes = values.size;
            if (keys != null) {
                bytes += keys.size;
            }
            if (headerEnds != null) {
                bytes += headerKeys.size + (long) headerValues.size;
            }
            return count == rowsMax || bytes >= bytesMax;
        }

        /** Whether the columns can hold another record; an empty block holds any. */
        boolean hasRoom(ConsumerRecord record) {
            long value = Math.max(record.serializedValueSize(), 0);
            long key = keys == null ? 0 : keys.size + (long) Math.max(record.serializedKeySize(), 0);
            return count == 0 || values.size + value + key <= COLUMN_BYTES_MAX;
        }

        void add(ConsumerRecord record, int topic) {
            offsets[count] = record.offset();
            timestamps[count] = record.timestamp();
            partitions[count] = partition;
            topicNumbers[count] = topic;
            hasTopics = hasTopics || topic > 0;
            values.add((ByteBuffer) record.value());
            if (keys != null) {
                keys.add((ByteBuffer) record.key());
            }
            if (headerEnds != null) {
                addHeaders(record.headers());
            }
            count++;
        }

        private void addHeaders(Headers headers) {
            for (Iterator each = headers.iterator(); each.hasNext();) {
                Header header = (Header) each.next();
                byte[] value = header.value();
                headerKeys.add(ByteBuffer.wrap(UTF8String.fromString(header.key()).getBytes()));
                headerValues.add(value == null ? null : ByteBuffer.wrap(value));
            }
            headerEnds.add(headerKeys.ends.count);
        }

        /** Return the row of the block, and begin the next one. */
        Object taken(List topics) {
            Object[] row = new Object[18];
            row[0] = Integer.valueOf(count);
            row[1] = UTF8String.fromString(String.join(" ", topics));
            row[2] = hasTopics ? bytes(topicNumbers, count) : null;
            row[3] = bytes(partitions, count);
            row[4] = bytes(offsets, count);
            row[5] = bytes(timestamps, count);
            values.take(row, 6, true);
            if (keys != null) {
                keys.take(row, 9, true);
            }
            if (headerEnds != null) {
                row[12] = headerEnds.taken();
                headerKeys.take(row, 13, false);
                headerValues.take(row, 15, true);
            }
            count = 0;
            hasTopics = false;
            return new GenericInternalRow(row);
        }
    }

    /** Byte strings in the layout of an Arrow array. */
    static final class Column {
        byte[] data = new byte[1 << 16];
        int size;
        final Ints ends = new Ints();
        private byte[] valid;

        void add(ByteBuffer value) {
            if (value == null) {
                int index = ends.count;
                if (valid == null) {
                    valid = new byte[64];
                    Arrays.fill(valid, (byte) -1);
                }
                if (index / 8 >= valid.length) {
                    int known = valid.length;
                    valid = Arrays.copyOf(valid, Math.max(index / 8 + 1, known * 2));
                    Arrays.fill(valid, known, valid.length, (byte) -1);
                }
                valid[index / 8] &= (byte) ~(1 << (index % 8));
            } else {
                int length = value.remaining();
                reserve(length);
                if (value.hasArray()) {
                    System.arraycopy(
                        value.array(), value.arrayOffset() + value.position(), data, size, length
                    );
                } else {
                    ((ByteBuffer) value.duplicate()).get(data, size, length);
                }
                size += length;
            }
            ends.add(size);
        }

        private void reserve(int length) {
            long needed = (long) size + length;
            if (needed > data.length) {
                long grown = Math.max(needed, data.length * 2L);
                data = Arrays.copyOf(data, (int) Math.min(grown, COLUMN_BYTES_MAX));
            }
        }

        /** Put the data, the ends and, where values may be null, the bitmap into a row. */
        void take(Object[] row, int at, boolean hasNulls) {
            int count = ends.count;
            row[at] = Arrays.copyOf(data, size);
            row[at + 1] = ends.taken();
            if (hasNulls && valid != null) {
                byte[] bitmap = Arrays.copyOf(valid, (count + 7) / 8);
                if (valid.length < bitmap.length) {
                    Arrays.fill(bitmap, valid.length, bitmap.length, (byte) -1);
                }
                row[at + 2] = bitmap;
            }
            valid = null;
            size = 0;
            if (data.length > KEPT_BYTES_MAX) {
                data = new byte[1 << 16];
            }
        }
    }

    /** Ends of values; the first one begins at 0. */
    static final class Ints {
        private int[] numbers = new int[1025];
        int count;

        void add(int number) {
            if (count + 1 == numbers.length) {
                numbers = Arrays.copyOf(numbers, numbers.length * 2);
            }
            numbers[++count] = number;
        }

        byte[] taken() {
            byte[] all = bytes(numbers, count + 1);
            count = 0;
            return all;
        }
    }

    static byte[] bytes(int[] numbers, int count) {
        byte[] all = new byte[count * 4];
        ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer().put(numbers, 0, count);
        return all;
    }

    static byte[] bytes(long[] numbers, int count) {
        byte[] all = new byte[count * 8];
        ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().put(numbers, 0, count);
        return all;
    }

    /** The consumers of this process that no read uses. They keep their connections. */
    static final class Consumers extends Thread {
        static final class Held {
            final HashMap properties;
            final KafkaConsumer consumer;
            long idleSinceMs;

            Held(HashMap properties) {
                this.properties = properties;
                consumer = new KafkaConsumer(properties);
            }
        }

        private static final ArrayDeque IDLE = new ArrayDeque();
        private static Consumers closing;

        private Consumers() {
            super("icefloe-idle-consumers");
            setDaemon(true);
        }

        static Held take(HashMap properties) {
            synchronized (IDLE) {
                for (Iterator each = IDLE.descendingIterator(); each.hasNext();) {
                    Held held = (Held) each.next();
                    if (held.properties.equals(properties)) {
                        each.remove();
                        return held;
                    }
                }
            }
            return new Held(properties);
        }

        /** Take back a consumer: it is used again if its read was complete. */
        static void give(Held held, boolean isUsable) {
            if (!isUsable) {
                held.consumer.close(Duration.ofSeconds(1L));
                return;
            }
            held.idleSinceMs = System.currentTimeMillis();
            synchronized (IDLE) {
                IDLE.addLast(held);
                if (closing == null) {
                    closing = new Consumers();
                    closing.start();
                }
            }
        }

        /** Close what is idle for too long; the thread ends with the last consumer. */
        public void run() {
            while (true) {
                try {
                    Thread.sleep(IDLE_MS / 4);
                } catch (InterruptedException stop) {
                    return;
                }
                ArrayList old = new ArrayList();
                long before = System.currentTimeMillis() - IDLE_MS;
                synchronized (IDLE) {
                    while (!IDLE.isEmpty() && ((Held) IDLE.peekFirst()).idleSinceMs < before) {
                        old.add(IDLE.pollFirst());
                    }
                    if (IDLE.isEmpty()) {
                        closing = null;
                    }
                }
                for (int i = 0; i < old.size(); i++) {
                    ((Held) old.get(i)).consumer.close(Duration.ofSeconds(1L));
                }
                synchronized (IDLE) {
                    if (closing != this) {
                        return;
                    }
                }
            }
        }
    }
}
