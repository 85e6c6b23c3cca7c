-- a role is not a member of itself, directly or through another
CREATE ROLE loop_a ROLE loop_a;
CREATE ROLE loop_a ADMIN loop_a;
CREATE ROLE loop_a;
CREATE GROUP loop_b ROLE loop_a;
ALTER GROUP loop_a ADD USER loop_b;
ALTER GROUP loop_a ADD USER loop_a;
GRANT loop_a TO loop_b;
DROP ROLE loop_b;
DROP ROLE loop_a;
