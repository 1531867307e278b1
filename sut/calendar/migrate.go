package calendar

import (
	"context"
	"embed"
	"io/fs"

	"github.com/overbook/overbook/sut/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is the calendar's tables.
func schema() database.Schema {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return database.Schema{Design: "calendar", Files: files}
}

// Migrate brings the schema up to date. Safe to run from several processes at
// once. It gives the version reached.
func Migrate(ctx context.Context, databaseURL string) (int32, error) {
	return schema().Migrate(ctx, databaseURL)
}
