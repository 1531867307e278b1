package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Names of the variables that mappings may use.
const (
	VarPrefix    = "prefix"     // path prefix of the run: "/r7/pyxis"
	VarDoubleURL = "double.url" // base URL of the stateful double
)

var (
	variable    = regexp.MustCompile(`\$\{([^}]*)\}`)
	plainPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
)

// Load installs all mappings (*.json, in any folder of the file system; one
// mapping or {"mappings": [...]} a file) after filling in ${name} from vars,
// and marks the journal for vars["prefix"]. The prefix keeps runs that share
// a WireMock apart. remove takes the mappings back.
//
// Errors name the file; nothing stays installed after one.
func (m *WireMock) Load(ctx context.Context, mappings fs.FS, vars map[string]string) (remove func(ctx context.Context) error, err error) {
	prefix := vars[VarPrefix]
	if !plainPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("load WireMock mappings: prefix %q is not of the form /word/word", prefix)
	}
	m.mu.Lock()
	_, taken := m.markers[prefix]
	m.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("load WireMock mappings: prefix %q is in use; give each run and upstream its own", prefix)
	}
	list, ids, err := readMappings(mappings, vars)
	if err != nil {
		return nil, fmt.Errorf("load WireMock mappings: %w", err)
	}
	remove = func(ctx context.Context) error { return m.remove(ctx, prefix, ids) }
	if err := m.admin(ctx, http.MethodPost, "/mappings/import", map[string]any{"mappings": list}, http.StatusOK, nil); err != nil {
		return nil, fmt.Errorf("load WireMock mappings: %w", errors.Join(err, remove(ctx)))
	}
	if err := m.mark(ctx, prefix); err != nil {
		return nil, fmt.Errorf("load WireMock mappings: %w", errors.Join(err, remove(ctx)))
	}
	return remove, nil
}

// remove takes mappings back; one that is not there (any more) is no error.
func (m *WireMock) remove(ctx context.Context, prefix string, ids []string) error {
	m.mu.Lock()
	delete(m.markers, prefix)
	m.mu.Unlock()
	var errs []error
	for _, id := range ids {
		err := m.wrapped(ctx, func() error { return m.client.DeleteStubByID(id) })
		if err != nil && !strings.Contains(err.Error(), "status: 404") {
			errs = append(errs, fmt.Errorf("remove WireMock mapping %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// readMappings gives the filled-in mappings and the ids that they get from us.
func readMappings(fsys fs.FS, vars map[string]string) (list []map[string]any, ids []string, err error) {
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".json" {
			return err
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		found, err := parseMappings(text, vars)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, found...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if len(list) == 0 {
		return nil, nil, errors.New("there is no *.json file with a mapping")
	}
	for _, mapping := range list {
		id := uuid.NewString()
		mapping["id"] = id
		delete(mapping, "uuid")
		ids = append(ids, id)
	}
	return list, ids, nil
}

func parseMappings(text []byte, vars map[string]string) ([]map[string]any, error) {
	filled, err := fill(string(text), vars)
	if err != nil {
		return nil, err
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(filled), &one); err != nil {
		return nil, fmt.Errorf("after filling in the variables: %w", err)
	}
	many, isList := one["mappings"]
	if !isList {
		return []map[string]any{one}, nil
	}
	var list struct{ Mappings []map[string]any }
	if err := json.Unmarshal([]byte(filled), &list); err != nil {
		return nil, fmt.Errorf("%q must be a list of mappings, not %T: %w", "mappings", many, err)
	}
	return list.Mappings, nil
}

// fill replaces ${name}. Values are escaped for the inside of a JSON string.
func fill(text string, vars map[string]string) (string, error) {
	var errs []error
	filled := variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		value, known := vars[name]
		if !known {
			errs = append(errs, fmt.Errorf("unknown variable ${%s}; known: %s", name, strings.Join(slices.Sorted(maps.Keys(vars)), ", ")))
			return found
		}
		quoted, err := json.Marshal(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("variable ${%s}: %w", name, err))
			return found
		}
		return string(quoted[1 : len(quoted)-1])
	})
	return filled, errors.Join(errs...)
}
