package icefloe.source;

import java.util.Arrays;

/** The ends of values, as 32-bit offsets of Arrow; the first value begins at 0. */
final class IntColumn {
    private int[] numbers = new int[1025];
    int count;

    void add(int number) {
        if (count + 1 == numbers.length) {
            numbers = Arrays.copyOf(numbers, numbers.length * 2);
        }
        numbers[++count] = number;
    }

    byte[] taken() {
        byte[] all = LittleEndian.bytes(numbers, count + 1);
        count = 0;
        return all;
    }
}
