package database

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
)

// A Schema is a design's tables, as the steps that lead to them. The version
// that a database has reached is kept in public.<design>_schema_version.
type Schema struct {
	Design string // "telescope"
	Files  fs.FS  // *.sql at its root, numbered from 001
}

// Migrate brings the schema up to date. Safe to run from several processes at
// once. It gives the version reached.
func (s Schema) Migrate(ctx context.Context, url string) (int32, error) {
	var version int32
	err := s.with(ctx, url, func(m *migrate.Migrator) error {
		if err := m.Migrate(ctx); err != nil {
			return fmt.Errorf("migrate the %s's schema: %w", s.Design, err)
		}
		version = int32(len(m.Migrations)) //nolint:gosec // a handful of files
		return nil
	})
	return version, err
}

// Check gives an error that says what to run when the schema is not the one
// this server was built for.
func (s Schema) Check(ctx context.Context, url string) error {
	return s.with(ctx, url, func(m *migrate.Migrator) error {
		have, err := m.GetCurrentVersion(ctx)
		if err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		if want := int32(len(m.Migrations)); have != want { //nolint:gosec // a handful of files
			return fmt.Errorf("the database's schema is at version %d, this server needs %d: run `overbook sut migrate --design %s` with the same DATABASE_URL", have, want, s.Design)
		}
		return nil
	})
}

func (s Schema) with(ctx context.Context, url string, do func(*migrate.Migrator) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	m, err := migrate.NewMigrator(ctx, conn, "public."+s.Design+"_schema_version")
	if err != nil {
		return fmt.Errorf("prepare the migration: %w", err)
	}
	if err := m.LoadMigrations(s.Files); err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return do(m)
}
