package telescope

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable is where the schema's version is kept.
const versionTable = "public.telescope_schema_version"

// Migrate brings the schema up to date. Safe to run from several processes at
// once. It gives the version reached.
func Migrate(ctx context.Context, databaseURL string) (int32, error) {
	var version int32
	err := withMigrator(ctx, databaseURL, func(m *migrate.Migrator) error {
		if err := m.Migrate(ctx); err != nil {
			return fmt.Errorf("migrate the telescope's schema: %w", err)
		}
		version = int32(len(m.Migrations)) //nolint:gosec // a handful of files
		return nil
	})
	return version, err
}

// checkSchema gives an error that says what to run when the schema is not the
// one this server was built for.
func checkSchema(ctx context.Context, databaseURL string) error {
	return withMigrator(ctx, databaseURL, func(m *migrate.Migrator) error {
		have, err := m.GetCurrentVersion(ctx)
		if err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		if want := int32(len(m.Migrations)); have != want { //nolint:gosec // a handful of files
			return fmt.Errorf("the database's schema is at version %d, this server needs %d: run `overbook sut migrate --design telescope` with the same DATABASE_URL", have, want)
		}
		return nil
	})
}

func withMigrator(ctx context.Context, databaseURL string, do func(*migrate.Migrator) error) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	m, err := migrate.NewMigrator(ctx, conn, versionTable)
	if err != nil {
		return fmt.Errorf("prepare the migration: %w", err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if err := m.LoadMigrations(files); err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return do(m)
}
