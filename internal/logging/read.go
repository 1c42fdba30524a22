package logging

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Query selects lines of a log. Its zero value selects none; set Last to All for
// all lines.
type Query struct {
	// Components are the components whose lines are selected. None selects all. A
	// component's name also selects its parts: controller-manager selects
	// controller-manager/job-controller. It selects the component on all nodes of
	// the machine; kubelet@n1-2 selects the kubelet of one further node, and
	// @n1-2 selects all components of that node.
	Components []string
	// Since is the time of the oldest line.
	Since time.Time
	// Last is how many of the selected lines are read at most, or All.
	Last int
}

// All is the Last of a Query for all lines.
const All = -1

// followInterval is the interval at which Follow looks for new lines.
const followInterval = 200 * time.Millisecond

// Read writes the selected lines of the log at path and of its rotated files to
// out, the oldest first. A missing log has no lines.
func Read(path string, q Query, out io.Writer) error {
	f, err := read(path, q, out)
	if err != nil {
		return err
	}
	return f.close()
}

// Follow is Read, and then writes selected lines as they are logged, until ctx
// ends.
func Follow(ctx context.Context, path string, q Query, out io.Writer) error {
	f, err := read(path, q, out)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return f.close()
		case <-time.After(followInterval):
		}
		if err := f.next(out); err != nil {
			return errors.Join(err, f.close())
		}
	}
}

// follower reads a log from where it was read before.
type follower struct {
	path   string
	filter filter
	file   *os.File // nil if there is no log yet
	lines  *bufio.Reader
	rest   string // a line whose end is not written yet
}

func read(path string, q Query, out io.Writer) (*follower, error) {
	files, err := openAll(path)
	if err != nil {
		return nil, err
	}
	f := &follower{path: path, filter: filter{query: q, now: time.Now()}}
	var last []string
	for _, file := range files {
		f.open(file)
		if q.Last == All {
			err = errors.Join(err, f.each(writeTo(out)))
			continue
		}
		err = errors.Join(err, f.each(func(line string) error {
			if last = append(last, line); len(last)/2 > max(q.Last, 1024) {
				last = slices.Delete(last, 0, len(last)-q.Last)
			}
			return nil
		}))
	}
	_, wrote := io.WriteString(out, strings.Join(last[max(0, len(last)-max(q.Last, 0)):], ""))
	if err = errors.Join(err, wrote); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// openAll opens a log and its rotated files, the oldest first. A file that is
// rotated while openAll runs is opened once.
func openAll(path string) ([]*os.File, error) {
	var files []*os.File
	for n := range oldFiles + 1 {
		name := path
		if n > 0 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		file, info, err := open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, err
		}
		if slices.ContainsFunc(files, func(f *os.File) bool {
			other, err := f.Stat()
			return err == nil && os.SameFile(info, other)
		}) {
			_ = file.Close()
			continue
		}
		files = slices.Insert(files, 0, file)
	}
	return files, nil
}

func open(name string) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no log", name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// open goes on to another file. A line of the former one that has no end never
// gets one.
func (f *follower) open(file *os.File) {
	_ = f.close()
	f.file, f.lines, f.rest = file, bufio.NewReader(file), ""
}

func (f *follower) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// writeTo returns a function that writes lines to out.
func writeTo(out io.Writer) func(line string) error {
	return func(line string) error {
		_, err := io.WriteString(out, line)
		return err
	}
}

// each calls do for each selected line that was not read before.
func (f *follower) each(do func(line string) error) error {
	for {
		text, err := f.lines.ReadString('\n')
		f.rest += text
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		line := f.rest
		f.rest = ""
		if !f.filter.selects(line) {
			continue
		}
		if err := do(line); err != nil {
			return err
		}
	}
}

// next writes the new lines. A log that was rotated is read to its end first.
func (f *follower) next(out io.Writer) error {
	write := writeTo(out)
	current, info, err := open(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.file != nil {
		if err := f.each(write); err != nil {
			return err
		}
	}
	if current == nil {
		return nil
	}
	if f.file != nil {
		if mine, err := f.file.Stat(); err == nil && os.SameFile(mine, info) {
			return current.Close()
		}
	}
	f.open(current)
	return f.each(write)
}

// filter is a Query with what it knows of the line before, which a line without
// a header continues.
type filter struct {
	query    Query
	now      time.Time
	selected bool
}

func (f *filter) selects(line string) bool {
	at, component, ok := header(line, f.now)
	if ok {
		f.selected = !at.Before(f.query.Since) && f.query.has(component)
	}
	return f.selected
}

func (q *Query) has(component string) bool {
	whole, _, _ := strings.Cut(component, "/")
	on, node, _ := strings.Cut(whole, "@")
	return len(q.Components) == 0 || slices.ContainsFunc(q.Components, func(name string) bool {
		return component == name || strings.HasPrefix(component, name+"/") || on == name || name == "@"+node
	})
}

// header returns the time and the component of a line. A line has no year: it is
// the current year or the one before.
func header(line string, now time.Time) (at time.Time, component string, ok bool) {
	if strings.HasPrefix(line, beginJSON) {
		return headerJSON(line)
	}
	fields := strings.SplitN(line, " ", 4)
	if len(fields) < 3 || fields[0] == "" || !strings.ContainsRune("IWE", rune(fields[0][0])) {
		return time.Time{}, "", false
	}
	at, err := time.ParseInLocation("2006 "+timeFormat, fmt.Sprintf("%d %s %s ", now.Year(), fields[0][1:], fields[1]), now.Location())
	if err != nil {
		return time.Time{}, "", false
	}
	if at.After(now.Add(24 * time.Hour)) {
		at = at.AddDate(-1, 0, 0)
	}
	return at, strings.TrimSpace(fields[2]), true
}
