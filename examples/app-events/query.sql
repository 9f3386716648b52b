SELECT "user", plan FROM events.app_signedup ORDER BY "user";

SELECT "user", cents FROM events.app_bought ORDER BY "user";
