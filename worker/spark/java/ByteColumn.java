package icefloe.source;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** Byte strings in the layout of an Arrow array. */
final class ByteColumn {
    /** Arrow has 32-bit offsets. */
    static final int BYTES_MAX = Integer.MAX_VALUE - 1024;
    /** Larger arrays are not kept for the next block. */
    private static final int KEPT_BYTES_MAX = 64 << 20;

    byte[] data = new byte[1 << 16];
    int size;
    final IntColumn ends = new IntColumn();
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
            data = Arrays.copyOf(data, (int) Math.min(grown, BYTES_MAX));
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
