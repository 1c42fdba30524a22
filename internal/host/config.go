package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/manifests"
	"github.com/coracle-io/coracle/internal/registries"
)

const (
	configVersion = "coracle.io/v1alpha1"
	configKind    = "Cluster"
	// maxConfig bounds a configuration file, and maxManifests the manifests that it
	// names together, in bytes.
	maxConfig, maxManifests = 1 << 20, 64 << 20
)

// Config holds the content of a cluster's configuration file: values of the flags
// of up (docs/guide/config-file.md), and files. A field that is left out, or null,
// sets nothing.
type Config struct {
	file   string   // as it was given, for messages
	dir    string   // where relative paths begin
	values Settings // of the flags in set
	set    []string // names of flags

	// Registries is the registries file that stands in the configuration; nil if
	// there is none.
	Registries *registries.File
	// Images are paths of archives to load, and NodeImages those for the nodes of a
	// list, by their places in it.
	Images     []string
	NodeImages [][]string
	// Manifests are the files to apply. It is nil if the configuration does not say
	// which, and then those that the cluster has stay.
	Manifests []Manifest
}

// Manifest is a file of objects to apply.
type Manifest struct {
	Name    string // without directories
	Content []byte
}

// ReadConfig reads a configuration file and the manifests that it names. The error
// names every wrong field by its path, one in each line.
func ReadConfig(path string) (*Config, error) {
	raw, err := readRegular(path, maxConfig)
	if err != nil {
		return nil, err
	}
	c := &Config{file: path, values: NewSettings()}
	if c.dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
		return nil, err
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	if raw, err = documents.Read(); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("want YAML: %w", err)
	}
	if more, err := documents.Read(); err == nil && len(bytes.TrimSpace(more)) > 0 {
		return nil, errors.New("want one YAML document")
	}
	object, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("want YAML: %w", err)
	}
	var tree map[string]any
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, errors.New("want fields such as apiVersion and kind")
	}
	return c, c.decode(tree)
}

// readRegular reads a regular file of at most limit bytes. It does not block on
// pipes.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("want a file"))
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("the file is larger than %d KiB", limit>>10)
	}
	return raw, err
}

// setField stores the value of a field, which is not null. Its errors begin with the
// path of the field.
type setField func(path string, value any) error

// decode stores the fields of a configuration.
func (c *Config) decode(tree map[string]any) error {
	if tree["apiVersion"] != configVersion || tree["kind"] != configKind {
		return fmt.Errorf("apiVersion and kind: want %s and %s", configVersion, configKind)
	}
	fields := map[string]setField{
		"apiVersion": func(string, any) error { return nil },
		"kind":       func(string, any) error { return nil },
		"images":     c.setImages,
		"manifests":  c.setManifests,
	}
	for _, f := range c.values.flags() {
		fields[f.key] = func(path string, value any) error {
			c.set = append(c.set, f.name)
			return c.setFlag(f, path, value)
		}
	}
	return walk(fields, "", tree)
}

// walk stores the fields of an object whose own path is prefix, which is empty or
// ends with a dot. It returns an error for each field that is unknown or wrong.
func walk(fields map[string]setField, prefix string, tree map[string]any) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		path, value := prefix+key, tree[key]
		set, inner := fields[path], namesBelow(fields, path+".")
		object, isObject := value.(map[string]any)
		switch {
		case set == nil && len(inner) == 0 || strings.Contains(key, "."):
			errs = append(errs, fmt.Errorf("%s: unknown field: want one of %s", path, strings.Join(namesBelow(fields, prefix), ", ")))
		case value == nil:
		case set != nil:
			errs = append(errs, set(path, value))
		case isObject:
			errs = append(errs, walk(fields, path+".", object))
		default:
			errs = append(errs, fmt.Errorf("%s: want the fields %s", path, strings.Join(inner, ", ")))
		}
	}
	return errors.Join(errs...)
}

// namesBelow returns the names of the fields whose paths begin with a prefix, sorted.
func namesBelow(fields map[string]setField, prefix string) []string {
	names := map[string]bool{}
	for path := range fields {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// setFlag stores the value of the field of a flag in the setting of the flag.
func (c *Config) setFlag(f flag, path string, value any) (err error) {
	switch {
	case f.name == registriesFlag && isObject(value):
		return c.setRegistries(path, value)
	case f.name == nodesFlag && isList(value):
		return c.setNodes(path, value.([]any))
	case f.text != nil:
		if *f.text, err = textOf(path, value); err == nil && (f.path || f.name == registriesFlag) {
			*f.text = c.absolute(*f.text)
		}
	case f.num != nil:
		number, _ := value.(json.Number)
		if *f.num, err = strconv.Atoi(number.String()); err != nil {
			err = fmt.Errorf("%s: want a whole number", path)
			if f.name == nodesFlag {
				err = fmt.Errorf("%w, or a list of nodes", err)
			}
		}
	case f.on != nil:
		*f.on, err = boolOf(path, value)
	case f.off != nil:
		on, wrong := boolOf(path, value)
		*f.off, err = !on, wrong
	case f.pairs != nil:
		*f.pairs, err = pairsOf(path, value, f.quantities)
	case f.args != nil:
		if *f.args, err = textsOf(path, value); err != nil {
			return err
		}
		// Absolute reports what is wrong with arguments, including arguments
		// from flags.
		if given, err := component.Given(f.component(), *f.args, c.dir); err == nil {
			*f.args = given
		}
	default:
		*f.list, err = textsOf(path, value)
	}
	return err
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

func isList(value any) bool {
	_, ok := value.([]any)
	return ok
}

// absolute returns a path of the configuration as an absolute one.
func (c *Config) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.dir, path)
}

func textOf(path string, value any) (string, error) {
	text, ok := value.(string)
	switch {
	case !ok:
		return "", fmt.Errorf("%s: want text; put it in quotes", path)
	case text == "":
		return "", fmt.Errorf("%s: is empty: leave it out for its default", path)
	}
	return text, nil
}

func boolOf(path string, value any) (bool, error) {
	is, ok := value.(bool)
	if !ok {
		return false, fmt.Errorf("%s: want true or false", path)
	}
	return is, nil
}

func textsOf(path string, value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: want a list", path)
	}
	texts, errs := make([]string, len(list)), make([]error, len(list))
	for i, one := range list {
		texts[i], errs[i] = textOf(fmt.Sprintf("%s[%d]", path, i), one)
	}
	return texts, errors.Join(errs...)
}

// pairsOf returns names with values, which may be numbers if they are quantities: as
// text 1.10 and 0123 would become others.
func pairsOf(path string, value any, quantities bool) (map[string]string, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: want names with values", path)
	}
	pairs, errs := make(map[string]string, len(object)), []error(nil)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		number, isNumber := object[name].(json.Number)
		text, isText := object[name].(string)
		switch {
		case isNumber && quantities:
			pairs[name] = number.String()
		case isText:
			pairs[name] = text
		default:
			errs = append(errs, fmt.Errorf("%s[%q]: want text; put it in quotes", path, name))
		}
	}
	return pairs, errors.Join(errs...)
}

// setRegistries reads a registries file that stands in the configuration.
func (c *Config) setRegistries(path string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(content) > registries.MaxSize {
		return fmt.Errorf("%s: want at most %d KiB", path, registries.MaxSize>>10)
	}
	if c.Registries, err = registries.ParseIn(c.dir, string(content)); err == nil {
		return nil
	}
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		errs = append(errs, fmt.Errorf("%s: %s", path, line))
	}
	return errors.Join(errs...)
}

// setImages stores the paths of archives.
func (c *Config) setImages(path string, value any) (err error) {
	c.Images, err = c.archives(path, value)
	return err
}

// archives returns the paths of archives, which must be there.
func (c *Config) archives(path string, value any) ([]string, error) {
	images, err := textsOf(path, value)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, image := range images {
		images[i] = c.absolute(image)
		if info, err := os.Stat(images[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", path, i, err))
		} else if !info.Mode().IsRegular() {
			errs = append(errs, fmt.Errorf("%s[%d]: %s: want a file, such as the output of docker save", path, i, image))
		}
	}
	return images, errors.Join(errs...)
}

// HasImages reports whether the configuration names images.
func (c *Config) HasImages() bool {
	return len(c.Images) > 0 || slices.ContainsFunc(c.NodeImages, func(images []string) bool { return len(images) > 0 })
}

// setManifests reads the manifests.
func (c *Config) setManifests(path string, value any) error {
	files, err := textsOf(path, value)
	if err != nil {
		return err
	}
	c.Manifests = []Manifest{}
	var errs []error
	size := 0
	for i, file := range files {
		m := Manifest{Name: filepath.Base(file)}
		m.Content, err = readRegular(c.absolute(file), manifests.MaxSize)
		if err == nil {
			err = manifests.Check(m.Name, m.Content)
		}
		if size += len(m.Content); err == nil && size > maxManifests {
			err = fmt.Errorf("the files are larger than %d MiB together", maxManifests>>20)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %s: %w", path, i, file, err))
			continue
		}
		c.Manifests = append(c.Manifests, m)
	}
	return errors.Join(errs...)
}

// Apply stores the values of the configuration in s, except for the flags whose
// names are in set, which the command line has. An argument of a component on the
// command line replaces the file's arguments of the same name. Apply returns the
// names of all flags that are set now.
func (c *Config) Apply(s *Settings, set []string) []string {
	all := slices.Clone(set)
	to := s.flags()
	for i, f := range c.values.flags() {
		switch given := slices.Contains(set, f.name); {
		case !slices.Contains(c.set, f.name):
			continue
		case !given:
			to[i].set(f)
			all = append(all, f.name)
		case f.args != nil:
			*to[i].args = append(without(*f.args, *to[i].args), *to[i].args...)
		}
	}
	s.Options.Node.Each = nodeOf(c.values.Options).Each
	return all
}

// without returns the arguments of a component without those that others set or
// remove.
func without(arguments, others []string) []string {
	return slices.DeleteFunc(slices.Clone(arguments), func(a string) bool {
		return slices.ContainsFunc(others, func(b string) bool { return argumentName(a) == argumentName(b) })
	})
}

// Named returns the text of an error with the file and the paths of its fields in
// place of flags that the file has set.
func (c *Config) Named(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for _, f := range c.values.flags() {
			rest, ok := strings.CutPrefix(line, "--"+f.name)
			if !ok || !slices.Contains(c.set, f.name) {
				continue
			}
			value, isValue := strings.CutPrefix(rest, "=")
			if !isValue && !strings.HasPrefix(rest, ":") {
				continue
			}
			if f.args != nil && !slices.ContainsFunc(*f.args, func(a string) bool { return strings.HasPrefix(value, a) }) {
				continue
			}
			lines[i] = c.file + ": " + f.key + ": " + strings.TrimPrefix(value, ": ")
		}
	}
	return strings.Join(lines, "\n")
}
