package mark

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tests is a package of tests.
type tests func() int

func (run tests) Run() int { return run() }

// While tests run, their mark is in names, in the environment of their processes
// and in the path of their files. At the end nothing is left.
func TestWhatMainMarks(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv(Variable, "")
	before, err := Makers(Folder())
	if err != nil {
		t.Fatal(err)
	}
	code := Main(tests(func() int {
		name := Name("node")
		mark, isMarked := strings.CutSuffix(name, "-node")
		if !isMarked || !regexp.MustCompile(`^test-[a-z0-9]{6}$`).MatchString(mark) {
			t.Errorf("the name is %s", name)
		}
		if dir, err := os.MkdirTemp("", "dir"); err != nil || filepath.Dir(dir) != filepath.Join(temporary, mark) {
			t.Errorf("a temporary directory is %s, %v", dir, err)
		}
		if out, err := exec.Command("sh", "-c", "echo $"+Variable).Output(); err != nil || strings.TrimSpace(string(out)) != mark {
			t.Errorf("the environment of a process has %q, %v", out, err)
		}
		now, err := Makers(Folder())
		if err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(now, func(m Maker) bool {
			return m.Mark == mark && m.PID == os.Getpid() && m.Running() && m.Directory == os.TempDir()
		}) {
			t.Errorf("the makers are %+v", now)
		}
		if code := Main(tests(func() int { return len(Name("")) })); code != len(mark)+1 { // as a process of the test
			t.Errorf("inside of the tests, Main returns %d", code)
		}
		return 7
	}))
	if code != 7 {
		t.Errorf("the exit code is %d", code)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if after, err := Makers(Folder()); err != nil || slices.ContainsFunc(after, func(m Maker) bool { return m.PID == os.Getpid() && !slices.Contains(before, m) }) {
		t.Errorf("the makers are %+v, %v", after, err)
	}
}

// A process id that another process has now is not the maker's.
func TestRunningIsThatProcess(t *testing.T) {
	m, err := Begin(filepath.Join(t.TempDir(), "makers"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !m.Running() {
		t.Error("this process does not run")
	}
	m.Start--
	if m.Running() {
		t.Error("an earlier process with this id runs")
	}
}

// Files that a test has not written, and those that others can write, are
// reported, and the others are read.
func TestMakersOfOthers(t *testing.T) {
	folder := t.TempDir()
	own, err := Begin(folder, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"test-aaaaaa.json": "{", "test-bbbbbb.json": `{"pid": 1, "start": 1, "directory": "/home"}`,
		"test-cccccc.json": `{"pid": 1, "start": 1, "directory": "test-cccccc"}`, "test-dddddd.json": `{"start": 1, "directory": "/tmp/test-dddddd"}`,
		"test-eeeeee.json": `{"pid": 1, "start": 1, "directory": "/tmp/test-eeeeee"}`, "other.json": "", "test-ffffff": "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(folder, "test-eeeeee.json"), 0o666); err != nil {
		t.Fatal(err)
	}
	all, err := Makers(folder)
	if len(all) != 1 || all[0] != own {
		t.Errorf("%+v, want %+v", all, own)
	}
	for _, name := range []string{"aaaaaa", "bbbbbb", "cccccc", "dddddd", "eeeeee"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not reported: %v", name, err)
		}
	}
	if err := own.End(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(own.Directory); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
