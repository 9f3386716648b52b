SELECT sensor, value, "at" FROM lab.events ORDER BY "at";
