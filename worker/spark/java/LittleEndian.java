package icefloe.source;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Numbers as the bytes of an Arrow array. */
final class LittleEndian {
    private LittleEndian() {
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
}
