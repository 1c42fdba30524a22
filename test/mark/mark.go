// Package mark marks what the tests of a package make on this machine, so that
// test/sweep can remove what is left of it when they were killed:
//
//	Main ─┬─► FOLDER/test-x3k9qa.json    which process makes it
//	      ├─► TMPDIR=/tmp/test-x3k9qa    its files
//	      └─► CORACLE_TEST=test-x3k9qa   the environment of its processes
//	Name ───► test-x3k9qa-node           the names of clusters, control groups,
//	                                     network namespaces, interfaces, tables, …
//
// The mark is random, so that it names what these tests made and nothing else.
// The id of the process alone does not: ids are used again.
package mark

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Variable is the environment variable with the mark. The processes of a test
// inherit it, and need it if their environment is made anew.
const Variable = "CORACLE_TEST"

// Main runs the tests of a package, in TestMain, and returns the exit code. It
// gives them a temporary directory of their own, and removes it at the end.
func Main(tests interface{ Run() int }) int {
	if os.Getenv(Variable) != "" { // a process of a test, which has the test's mark
		return tests.Run()
	}
	m, err := Begin(Folder(), os.TempDir())
	if err == nil {
		err = errors.Join(os.Setenv(Variable, m.Mark), os.Setenv("TMPDIR", m.Directory))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mark what the tests make:", err)
		return 1
	}
	code := tests.Run()
	if err := m.End(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests have left something, which the next sweep removes:", err)
	}
	return code
}

// Tests are tests that Main runs, for functions that run the tests of a package
// themselves, such as leaktest.Run.
type Tests struct{ M interface{ Run() int } }

// Run runs the tests.
func (t Tests) Run() int { return Main(t.M) }

// Name returns the name of something that a test makes on the machine, which
// begins with the mark. Main must run the test. Names of network interfaces have
// at most 15 bytes, which leaves three for the suffix.
func Name(suffix string) string {
	own := os.Getenv(Variable)
	if own == "" {
		panic("mark.Name outside of mark.Main: call it in TestMain")
	}
	return own + "-" + suffix
}

// Maker is a process that runs tests.
type Maker struct {
	Mark      string `json:"-"` // begins the names of what it makes
	PID       int    `json:"pid"`
	Start     uint64 `json:"start"`     // in clock ticks since boot
	Directory string `json:"directory"` // has its files

	file string
}

// Folder returns the directory with a file for each Maker of this user.
func Folder() string {
	if os.Geteuid() == 0 {
		return "/run/coracle-tests"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("coracle-tests-%d", os.Geteuid()))
}

// Begin makes this process a Maker, with a new mark and a directory in temporary.
func Begin(folder, temporary string) (Maker, error) {
	self, ok := processes.ReadStat(os.Getpid())
	if !ok {
		return Maker{}, errors.New("/proc does not show this process")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return Maker{}, err
	}
	m := newMaker(folder, newMark())
	m.PID, m.Start, m.Directory = os.Getpid(), self.Start, filepath.Join(temporary, m.Mark)
	raw, err := json.Marshal(m)
	if err != nil {
		return Maker{}, err
	}
	// The file is there before anything that it is about.
	if err := sharedfile.Replace(m.file, sharedfile.Content{Data: raw, Mode: 0o600}); err != nil {
		return Maker{}, err
	}
	if err := os.Mkdir(m.Directory, 0o755); err != nil { // other users that tests run commands as enter it
		return Maker{}, errors.Join(err, os.Remove(m.file))
	}
	return m, nil
}

const (
	prefix = "test-"
	suffix = ".json"
)

// newMark returns a random mark. It is short, because it is part of the paths of
// sockets, which have at most 107 bytes.
func newMark() string {
	const letters, length = "abcdefghijklmnopqrstuvwxyz0123456789", 6
	b := []byte(prefix)
	for range length {
		b = append(b, letters[rand.IntN(len(letters))])
	}
	return string(b)
}

func newMaker(folder, mark string) Maker {
	return Maker{Mark: mark, file: filepath.Join(folder, mark+suffix)}
}

// maxFile bounds a Maker's file, in bytes.
const maxFile = 4096

// Makers returns the makers in a folder, running or not. It reports files that it
// cannot read, or that others may have written, beside the rest.
func Makers(folder string) (all []Maker, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name, isMaker := strings.CutSuffix(e.Name(), suffix)
		if !isMaker || !strings.HasPrefix(name, prefix) {
			continue
		}
		m := newMaker(folder, name)
		raw, readErr := sharedfile.ReadOwn(m.file, maxFile)
		if errors.Is(readErr, fs.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if readErr == nil {
			readErr = json.Unmarshal(raw, &m)
		}
		if readErr == nil && (m.PID <= 0 || filepath.Base(m.Directory) != m.Mark || !filepath.IsAbs(m.Directory)) {
			readErr = errors.New("this is not what a test has written: remove it")
		}
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m.file, readErr))
			continue
		}
		all = append(all, m)
	}
	return all, err
}

// Running reports whether the process runs.
func (m Maker) Running() bool { return processes.Process{PID: m.PID, Start: m.Start}.Running() }

// Prefix returns what the names of everything that the process makes begin with,
// except for Directory.
func (m Maker) Prefix() string { return m.Mark + "-" }

// End removes the directory and the file of a process that makes nothing more. It
// fails, and leaves the file, while something is mounted in the directory.
func (m Maker) End() error {
	if err := tree.Remove(m.Directory); err != nil {
		return err
	}
	return os.Remove(m.file)
}
