package jsonpatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a JSON patch.
const (
	// MaxOperations bounds the operations of a patch.
	MaxOperations = 10000
	// maxCopied bounds the bytes that copy operations may add
	// (CVE-2019-1002100).
	maxCopied = 3 << 20
	// maxMoved bounds how many elements of lists move when others are inserted
	// before them or removed.
	maxMoved = 100_000_000
)

var (
	errMissing      = errors.New("missing value")
	errTestFailed   = errors.New("test failed")
	errInvalidIndex = errors.New("invalid index referenced")
	errMoved        = errors.New("the patch moves too many elements of long lists: add at the end of lists, or replace them")
)

// Patch is a JSON patch.
type Patch []operation

type operation map[string]*json.RawMessage

// Parse reads a patch.
func Parse(data []byte) (Patch, error) {
	var p Patch
	return p, json.Unmarshal(data, &p)
}

// Apply applies the patch to a document. It returns ctx's error once ctx ends.
func (p Patch) Apply(ctx context.Context, document []byte) ([]byte, error) {
	root, err := parse(document)
	if err != nil {
		return nil, err
	}
	a := &application{root: root}
	for _, o := range p {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := a.do(o); err != nil {
			return nil, err
		}
	}
	return encode(a.root)
}

// application is the state of applying a patch.
type application struct {
	root          any
	copied, moved int
}

func (a *application) do(o operation) error {
	switch kind := o.kind(); kind {
	case "add":
		return a.add(o)
	case "remove":
		return a.remove(o)
	case "replace":
		return a.replace(o)
	case "move":
		return a.move(o)
	case "test":
		return a.test(o)
	case "copy":
		return a.copy(o)
	default:
		return fmt.Errorf("Unexpected kind: %s", kind) //nolint:staticcheck // the library's message
	}
}

func (o operation) kind() string {
	kind := "unknown"
	if raw := o["op"]; raw != nil && json.Unmarshal(*raw, &kind) != nil {
		return "unknown"
	}
	return kind
}

func (o operation) path() (string, error) {
	raw := o["path"]
	if raw == nil {
		return "", fmt.Errorf("operation missing path field: %w", errMissing)
	}
	var path string
	return path, json.Unmarshal(*raw, &path)
}

func (o operation) from() (string, error) {
	raw := o["from"]
	if raw == nil {
		return "", fmt.Errorf("operation, missing from field: %w", errMissing)
	}
	var from string
	return from, json.Unmarshal(*raw, &from)
}

func (o operation) value() (any, error) {
	if raw := o["value"]; raw != nil {
		return parse(*raw)
	}
	return nil, nil
}

// location is a field of an object or an element of a list. It need not exist.
type location struct {
	fields map[string]any // nil for a list
	list   *list
	key    string
}

var unescaped = strings.NewReplacer("~1", "/", "~0", "~") // RFC 6901, section 4

// find returns the location of a path; false if its container does not exist.
func (a *application) find(path string) (location, bool) {
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return location{}, false
	}
	holder := a.root
	for _, part := range parts[1 : len(parts)-1] {
		at, ok := locationIn(holder, unescaped.Replace(part))
		if !ok {
			return location{}, false
		}
		if holder, _ = at.get(); holder == nil {
			return location{}, false
		}
	}
	return locationIn(holder, unescaped.Replace(parts[len(parts)-1]))
}

func locationIn(holder any, key string) (location, bool) {
	switch h := holder.(type) {
	case map[string]any:
		return location{fields: h, key: key}, true
	case *list:
		return location{list: h, key: key}, true
	}
	return location{}, false
}

// index returns the index that the key means in a list; a negative key counts
// from the end. size is the number of valid indexes.
func (p location) index(size int) (int, error) {
	i, err := strconv.Atoi(p.key)
	switch {
	case err != nil:
		return 0, err
	case i >= size || i < -size:
		return 0, fmt.Errorf("Unable to access invalid index: %d: %w", i, errInvalidIndex) //nolint:staticcheck // the library's message
	case i < 0:
		i += size
	}
	return i, nil
}

// get returns the value; nil for a missing field.
func (p location) get() (any, error) {
	if p.fields != nil {
		return p.fields[p.key], nil
	}
	i, err := p.index(len(p.list.items))
	if err != nil {
		return nil, err
	}
	return p.list.items[i], nil
}

func (p location) set(value any) error {
	if p.fields != nil {
		p.fields[p.key] = value
		return nil
	}
	i, err := p.index(len(p.list.items))
	if err == nil {
		p.list.items[i] = value
	}
	return err
}

func (a *application) insert(p location, value any) error {
	if p.fields != nil {
		p.fields[p.key] = value
		return nil
	}
	if p.key == "-" {
		p.list.items = append(p.list.items, value)
		return nil
	}
	if _, err := strconv.Atoi(p.key); err != nil {
		return fmt.Errorf("value was not a proper array index: '%s': %w", p.key, err)
	}
	i, err := p.index(len(p.list.items) + 1)
	if err != nil {
		return err
	}
	p.list.items = slices.Insert(p.list.items, i, value)
	return a.shifted(len(p.list.items) - i)
}

func (a *application) removeAt(p location) error {
	if p.fields != nil {
		if _, ok := p.fields[p.key]; !ok {
			return fmt.Errorf("Unable to remove nonexistent key: %s: %w", p.key, errMissing) //nolint:staticcheck // the library's message
		}
		delete(p.fields, p.key)
		return nil
	}
	i, err := p.index(len(p.list.items))
	if err != nil {
		return err
	}
	p.list.items = slices.Delete(p.list.items, i, i+1)
	return a.shifted(len(p.list.items) - i)
}

func (a *application) shifted(elements int) error {
	if a.moved += elements; a.moved > maxMoved {
		return errMoved
	}
	return nil
}

func (a *application) add(o operation) error {
	path, err := o.path()
	if err != nil {
		return fmt.Errorf("add operation failed to decode path: %w", errMissing)
	}
	at, ok := a.find(path)
	if !ok {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	value, err := o.value()
	if err == nil {
		err = a.insert(at, value)
	}
	if err != nil {
		return fmt.Errorf("error in add for path: '%s': %w", path, err)
	}
	return nil
}

func (a *application) remove(o operation) error {
	path, err := o.path()
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", errMissing)
	}
	at, ok := a.find(path)
	if !ok {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := a.removeAt(at); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (a *application) replace(o operation) error {
	path, err := o.path()
	if err != nil {
		return fmt.Errorf("replace operation failed to decode path: %w", err)
	}
	value, err := o.value()
	if err != nil {
		return err
	}
	if path == "" {
		switch value.(type) {
		case map[string]any, *list:
			a.root = value
			return nil
		}
		return errors.New("replace operation value must be object or array")
	}
	at, ok := a.find(path)
	if !ok {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, errMissing)
	}
	if at.set(value) != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, errMissing)
	}
	return nil
}

func (a *application) move(o operation) error {
	from, err := o.from()
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	at, ok := a.find(from)
	if !ok {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	value, err := at.get()
	if err == nil {
		err = a.removeAt(at)
	}
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", at.key, err)
	}
	path, err := o.path()
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	if at, ok = a.find(path); !ok {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if err := a.insert(at, value); err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", path, err)
	}
	return nil
}

func (a *application) test(o operation) error {
	path, err := o.path()
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	wanted, err := o.value()
	if err != nil {
		return err
	}
	value := a.root
	if path != "" {
		at, ok := a.find(path)
		if !ok {
			return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, errMissing)
		}
		if value, err = at.get(); err != nil {
			return fmt.Errorf("error in test for path: '%s': %w", path, err)
		}
	}
	if !equal(value, wanted) {
		return fmt.Errorf("testing value %s failed: %w", path, errTestFailed)
	}
	return nil
}

func (a *application) copy(o operation) error {
	from, err := o.from()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	at, ok := a.find(from)
	if !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	value, err := at.get()
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := o.path()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", errMissing)
	}
	if at, ok = a.find(path); !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if deeper(value, maxNesting) {
		return errNesting
	}
	if value != nil {
		a.copied += size(value)
	}
	if a.copied > maxCopied {
		return fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d", a.copied, maxCopied) //nolint:staticcheck // the library's message
	}
	if err := a.insert(at, clone(value)); err != nil {
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}
