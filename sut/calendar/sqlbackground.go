package calendar

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/database"
)

// States of an account.
const (
	accountOK     = "OK"
	accountFailed = "FAILED_AUTH"
)

// Tokens. Who refreshes has the row's key; what was found out under a key is
// stored only while the row still has it, and the generation that it is of.
const (
	sqlAccount = `select state, access_token, generation, quiet_until from accounts where resource_id = $1`

	// sqlTakeRefresh takes the lease when nobody has it. The key of a refresh that
	// somebody began stays: the provider may have rotated the token under it.
	sqlTakeRefresh = `
update accounts set refresh_key = coalesce(refresh_key, $3), refreshing_until = $5
where resource_id = $1 and generation = $2 and state = 'OK' and (refreshing_until is null or refreshing_until <= $4)
returning refresh_key, refresh_token`

	sqlRefreshed = `
update accounts set access_token = $4, refresh_token = $5, generation = generation + 1, refresh_key = null, refreshing_until = null, changed_at = $6
where resource_id = $1 and generation = $2 and refresh_key = $3 returning resource_id`

	sqlAuthorisationOver = `
update accounts set state = 'FAILED_AUTH', refresh_key = null, refreshing_until = null, changed_at = $4
where resource_id = $1 and generation = $2 and refresh_key = $3 returning resource_id`

	// sqlLeaveRefresh ends the lease, not the refresh: its key stays.
	sqlLeaveRefresh = `
update accounts set refreshing_until = $4 where resource_id = $1 and generation = $2 and refresh_key = $3 returning resource_id`

	sqlQuiet = `
update accounts set quiet_until = greatest(quiet_until, $2) where resource_id = $1 returning resource_id`
)

// alter runs one statement that changes rows, as a transaction of its own, and
// gives what it returns of them.
func alter[T any](ctx context.Context, st *store, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	ctx, end := st.Bounded(ctx)
	defer end()
	err = st.WithConn(ctx, func(conn *pgxpool.Conn) error {
		out, err = database.Rows(ctx, conn, scan, sql, args...)
		return err
	})
	return out, err
}
