package icefloe.source;

import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.List;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Columns of the records that were read last. The layout is that of Arrow arrays, so Python uses them
 * as they are (worker/batch/record_blocks.py).
 */
final class Block {
    static final StructType SCHEMA = schema();

    private final int rowsMax;
    private final int bytesMax;
    private final long[] offsets;
    private final long[] timestamps;
    private final int[] partitions;
    private final int[] topicNumbers;
    private final ByteColumn values = new ByteColumn();
    private final ByteColumn keys;
    private final ByteColumn headerKeys;
    private final ByteColumn headerValues;
    private final IntColumn headerEnds;
    private boolean hasTopics;
    int partition;
    int count;

    Block(BlockReader reader) {
        rowsMax = reader.blockRows;
        bytesMax = reader.blockBytes;
        offsets = new long[rowsMax];
        timestamps = new long[rowsMax];
        partitions = new int[rowsMax];
        topicNumbers = new int[rowsMax];
        keys = reader.keys ? new ByteColumn() : null;
        headerKeys = reader.headers ? new ByteColumn() : null;
        headerValues = reader.headers ? new ByteColumn() : null;
        headerEnds = reader.headers ? new IntColumn() : null;
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
        return count == 0 || values.size + value + key <= ByteColumn.BYTES_MAX;
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
        row[2] = hasTopics ? LittleEndian.bytes(topicNumbers, count) : null;
        row[3] = LittleEndian.bytes(partitions, count);
        row[4] = LittleEndian.bytes(offsets, count);
        row[5] = LittleEndian.bytes(timestamps, count);
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
}
