package icefloe.sql;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's pattern functions, with a bounded number of steps for each text.
 *
 * The worker compiles this file with Spark's compiler, Janino, which does not support lambdas.
 */
public final class BoundedPatterns {
    private BoundedPatterns() {}

    /** Maximum number of steps of a match: for each character of the text, and for any text. */
    public static final long STEPS_PER_CHARACTER = 1000L;
    public static final long STEPS = 20000L;

    /** A match exceeds the number of steps for the length of its text. The record is refused. */
    public static final class LimitExceeded extends RuntimeException {
        public LimitExceeded(String message) {
            super(message, null, false, false);
        }
    }

    static final LimitExceeded TOO_MANY_STEPS =
        new LimitExceeded("a pattern needs more steps than the length of its text allows");
    static final LimitExceeded TOO_DEEP =
        new LimitExceeded("a pattern needs more stack than a thread has");

    /** A text that counts reads of characters; Java's matcher reads one character in each step. */
    static final class CountedText implements CharSequence {
        private final String text;
        private long stepsLeft;

        CountedText(String text) {
            this.text = text;
            this.stepsLeft = STEPS + STEPS_PER_CHARACTER * text.length();
        }

        public char charAt(int index) {
            if (--this.stepsLeft < 0) {
                throw TOO_MANY_STEPS;
            }
            return this.text.charAt(index);
        }

        public int length() {
            return this.text.length();
        }

        public CharSequence subSequence(int start, int end) {
            return this.text.substring(start, end);
        }

        public String toString() {
            return this.text;
        }
    }

    /** A regular expression. */
    public static final class Regex implements Serializable {
        private final String source;
        private final Pattern pattern;

        /**
         * @param source the pattern in the query
         * @param oncePerLine a pattern with the same matches, which is executed
         */
        public Regex(String source, String oncePerLine) {
            this.source = source;
            this.pattern = Pattern.compile(oncePerLine);
        }

        public String source() {
            return this.source;
        }

        public String toString() {
            return this.source;
        }

        /** Whether the pattern is one escaped character, for which Java has a fast path. */
        private boolean isEscape() {
            return this.source.length() == 2 && this.source.charAt(0) == '\\';
        }

        /** rlike */
        public boolean find(UTF8String text) {
            try {
                return this.pattern.matcher(new CountedText(text.toString())).find();
            } catch (StackOverflowError error) {
                throw TOO_DEEP;
            }
        }

        /** regexp_extract */
        public UTF8String extract(UTF8String text, int group) {
            Matcher matcher = this.pattern.matcher(new CountedText(text.toString()));
            try {
                if (!matcher.find()) {
                    return UTF8String.EMPTY_UTF8;
                }
            } catch (StackOverflowError error) {
                throw TOO_DEEP;
            }
            String found = matcher.group(group);
            return found == null ? UTF8String.EMPTY_UTF8 : UTF8String.fromString(found);
        }

        /** regexp_substr */
        public UTF8String first(UTF8String text) {
            UTF8String found = this.extract(text, 0);
            return found.numBytes() == 0 ? null : found;
        }

        /** regexp_instr; Spark ignores the group. */
        public int position(UTF8String text, int group) {
            Matcher matcher = this.pattern.matcher(new CountedText(text.toString()));
            try {
                return matcher.find() ? matcher.start() + 1 : 0;
            } catch (StackOverflowError error) {
                throw TOO_DEEP;
            }
        }

        /** regexp_count */
        public int count(UTF8String text) {
            Matcher matcher = this.pattern.matcher(new CountedText(text.toString()));
            int found = 0;
            try {
                while (matcher.find()) {
                    found++;
                }
            } catch (StackOverflowError error) {
                throw TOO_DEEP;
            }
            return found;
        }

        /** regexp_replace */
        public UTF8String replace(UTF8String text, UTF8String replacement, int position) {
            String all = text.toString();
            int start = position - 1;
            if (start != 0 && start >= all.length()) {
                return text;
            }
            CountedText counted = new CountedText(all);
            Matcher matcher = this.pattern.matcher(counted);
            matcher.region(start, all.length());
            String by = replacement.toString();
            StringBuilder result = new StringBuilder();
            try {
                while (matcher.find()) {
                    matcher.appendReplacement(result, by);
                }
                matcher.appendTail(result);
            } catch (StackOverflowError error) {
                throw TOO_DEEP;
            }
            return UTF8String.fromString(result.toString());
        }

        /** split */
        public ArrayData split(UTF8String text, int limit) {
            if (this.source.isEmpty()) {
                return new GenericArrayData(text.split(UTF8String.EMPTY_UTF8, limit));
            }
            int asked = limit == 0 ? -1 : limit;
            String[] parts;
            if (this.source.length() == 1 || this.isEscape()) {
                parts = text.toString().split(this.source, asked);
            } else {
                try {
                    parts = this.pattern.split(new CountedText(text.toString()), asked);
                } catch (StackOverflowError error) {
                    throw TOO_DEEP;
                }
            }
            Object[] found = new Object[parts.length];
            for (int i = 0; i < parts.length; i++) {
                found[i] = UTF8String.fromString(parts[i]);
            }
            return new GenericArrayData(found);
        }
    }

    /** A pattern of LIKE; a match takes linear time. */
    public static final class Like implements Serializable {
        private static final int ONE = -1;
        private static final int ANY = -2;
        private final String source;
        private final int[] pattern;

        public Like(String source, String escape) {
            this.source = source;
            this.pattern = parsed(source, escape.codePointAt(0));
        }

        public String source() {
            return this.source;
        }

        public String toString() {
            return this.source;
        }

        private static int[] parsed(String source, int escape) {
            int[] given = source.codePoints().toArray();
            int[] found = new int[given.length];
            int count = 0;
            for (int i = 0; i < given.length; i++) {
                int each = given[i];
                if (each == escape) {
                    i++;
                    if (i == given.length) {
                        throw new IllegalArgumentException("the escape character ends the pattern");
                    }
                    each = given[i];
                    if (each != '_' && each != '%' && each != escape) {
                        throw new IllegalArgumentException(
                            "the escape character may precede only _, % and itself");
                    }
                    found[count++] = each;
                } else if (each == '_') {
                    found[count++] = ONE;
                } else if (each != '%') {
                    found[count++] = each;
                } else if (count == 0 || found[count - 1] != ANY) {
                    found[count++] = ANY;
                }
            }
            int[] result = new int[count];
            System.arraycopy(found, 0, result, 0, count);
            return result;
        }

        /** like: if a part does not match, the last % before it matches one character more. */
        public boolean matches(UTF8String text) {
            int[] characters = text.toString().codePoints().toArray();
            int at = 0;
            int next = 0;
            int afterAny = -1;
            int anyEnd = 0;
            while (at < characters.length) {
                if (next < this.pattern.length && this.pattern[next] == ANY) {
                    next++;
                    afterAny = next;
                    anyEnd = at;
                } else if (next < this.pattern.length
                        && (this.pattern[next] == ONE || this.pattern[next] == characters[at])) {
                    next++;
                    at++;
                } else if (afterAny >= 0) {
                    anyEnd++;
                    next = afterAny;
                    at = anyEnd;
                } else {
                    return false;
                }
            }
            while (next < this.pattern.length && this.pattern[next] == ANY) {
                next++;
            }
            return next == this.pattern.length;
        }
    }
}
