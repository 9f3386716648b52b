package icefloe.source;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/** Reads ranges with few records into blocks, in the thread of the caller and without a Spark task. */
public final class DriverBlocks {
    private static final byte[] PADDING = new byte[8];

    private final BlockReader reader;

    /** The arguments are those of BlockReader. */
    public DriverBlocks(
        Map properties, int blockRows, int blockBytes, boolean keys, boolean headers
    ) {
        reader = new BlockReader(properties, blockRows, blockBytes, keys, headers);
    }

    /**
     * Return two lines of text. The first has the ranges that were read, in the form of the argument.
     * The second has the blocks (Base64): of each block the number of records, then each column as its
     * length in bytes, or -1 without the column, and its bytes, which begin and end at a multiple of 8.
     *
     * @param line of ranges, see OffsetRange
     * @param bytesMax return null where the columns have more bytes
     * @param timeoutMs return null where the records are not there after this time
     * @param mayPassEnds whether records after the end of a range are taken if the consumer has
     *     returned them with records before it
     */
    public String read(String line, int bytesMax, long timeoutMs, boolean mayPassEnds)
        throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        long deadlineMs = System.currentTimeMillis() + timeoutMs;
        ArrayList ranges = OffsetRange.parse(line);
        RangeBlocks blocks = new RangeBlocks(reader, ranges, null, deadlineMs, mayPassEnds);
        try {
            while (blocks.hasNext() && bytes.size() <= bytesMax) {
                write(out, (GenericInternalRow) blocks.next());
            }
            if (!blocks.isRead() || bytes.size() > bytesMax) {
                return null;
            }
            String text = Base64.getEncoder().encodeToString(bytes.toByteArray());
            return line(ranges, blocks.positions()) + "\n" + text;
        } finally {
            blocks.release(blocks.isRead());
        }
    }

    private static String line(ArrayList ranges, HashMap ends) {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < ranges.size(); i++) {
            OffsetRange range = (OffsetRange) ranges.get(i);
            Object end = ends.get(new TopicPartition(range.topic, range.partition));
            line.append(i == 0 ? "" : ",").append(range.partition).append(' ').append(range.start);
            line.append(' ').append(end).append(' ').append(range.topic);
        }
        return line.toString();
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
}
