"""Operations on one connector from outside: audit, migration, catalog check, replay."""
