package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	logQueryTimeout = 30 * time.Second // of a query of the journal
	maxServiceName  = 256
	maxTailLines    = 100000
)

// logQuery is a query of the logs of services, or of a file (KEP-2258).
type logQuery struct {
	services, files []string
	since, until    *time.Time
	boot, tail      *int
	pattern         string
}

// newLogQuery reads a query from the parameters of a request. It returns nil if
// there is none.
func newLogQuery(values url.Values) (*logQuery, field.ErrorList) {
	q, errs, asked := &logQuery{pattern: values.Get("pattern")}, field.ErrorList{}, values.Get("pattern") != ""
	for _, name := range values["query"] {
		if strings.ContainsAny(name, `/\`) {
			q.files = append(q.files, name)
		} else if strings.TrimSpace(name) != "" {
			q.services = append(q.services, name)
		}
	}
	if values.Has("query") {
		asked = true
		if len(q.files)+len(q.services) == 0 {
			errs = append(errs, field.Invalid(field.NewPath("query"), values["query"], "query cannot be empty"))
		}
	}
	for name, at := range map[string]**time.Time{"sinceTime": &q.since, "untilTime": &q.until} {
		if text := values.Get(name); text != "" {
			asked = true
			if when, err := time.Parse(time.RFC3339, text); err != nil {
				errs = append(errs, field.Invalid(field.NewPath(name), text, "invalid time format"))
			} else {
				*at = &when
			}
		}
	}
	for name, number := range map[string]**int{"boot": &q.boot, "tailLines": &q.tail} {
		if text := values.Get(name); text != "" {
			asked = true
			if n, err := strconv.Atoi(text); err != nil {
				errs = append(errs, field.Invalid(field.NewPath(name), text, err.Error()))
			} else {
				*number = &n
			}
		}
	}
	if len(errs) > 0 || !asked {
		return nil, errs
	}
	return q, nil
}

// hasOptions reports whether the query is for a part of the logs only.
func (q *logQuery) hasOptions() bool {
	return q.since != nil || q.until != nil || q.boot != nil || q.tail != nil || q.pattern != ""
}

// validate returns why the query is refused.
func (q *logQuery) validate() field.ErrorList {
	var errs field.ErrorList
	query := field.NewPath("query")
	switch {
	case len(q.files) > 0 && len(q.services) > 0:
		errs = append(errs, field.Invalid(query, slices.Concat(q.files, q.services), "cannot specify a file and service"))
	case len(q.files) > 1:
		errs = append(errs, field.Invalid(query, q.files, "cannot specify more than one file"))
	case len(q.files) == 1 && q.hasOptions():
		errs = append(errs, field.Invalid(query, q.files, "cannot specify file with options"))
	}
	for _, name := range q.services {
		if len(name) > maxServiceName {
			errs = append(errs, field.TooLong(query, name, maxServiceName))
		} else if strings.ContainsFunc(name, func(r rune) bool { return !isServiceCharacter(r) }) || name[0] == '-' {
			errs = append(errs, field.Invalid(query, name, "input contains unsupported characters"))
		}
	}
	if q.since != nil && q.until != nil && q.since.After(*q.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.until, "must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.tail != nil {
		for _, message := range validation.IsInRange(*q.tail, 0, maxTailLines) {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.tail, message))
		}
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.pattern, err.Error()))
	}
	return errs
}

// isServiceCharacter reports whether a rune may be in the name of a service,
// which is a part of paths and of arguments of commands.
func isServiceCharacter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_@", r)
}

// journalArguments returns the arguments of journalctl.
func (q *logQuery) journalArguments(services []string) []string {
	const layout = "2006-01-02 15:04:05"
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil {
		args = append(args, "--since="+q.since.UTC().Format(layout))
	}
	if q.until != nil {
		args = append(args, "--until="+q.until.UTC().Format(layout))
	}
	if q.tail != nil {
		args = append(args, "--lines="+strconv.Itoa(*q.tail))
	}
	for _, name := range services {
		args = append(args, "--unit="+name)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern, "--case-sensitive=false")
	}
	if q.boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.boot))
	}
	return args
}

// journalctl runs journalctl with its output and its errors written to w.
func journalctl(ctx context.Context, w io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "journalctl", args...)
	command.Stdout, command.Stderr = w, w
	return command.Run()
}

// systemLog serves the directory of the system's logs, and queries of it and of
// the journal.
type systemLog struct {
	root    systemLogs
	files   http.Handler
	journal func(ctx context.Context, w io.Writer, args ...string) error
}

// ServeHTTP answers a query as upstream does. The path is relative to /logs/.
func (l *systemLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, errs := newLogQuery(r.URL.Query())
	if len(errs) > 0 {
		http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
		return
	}
	if q == nil {
		l.files.ServeHTTP(w, r)
		return
	}
	if strings.Trim(r.URL.Path, "/") != "" {
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return
	}
	if errs := q.validate(); len(errs) > 0 {
		http.Error(w, errs.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.services) == 0 { // options alone have no effect
		named := r.Clone(r.Context())
		for _, file := range q.files {
			named.URL.Path = strings.TrimPrefix(strings.ReplaceAll(file, `\`, "/"), "/")
		}
		l.files.ServeHTTP(w, named)
		return
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	ctx, cancel := context.WithTimeout(r.Context(), logQueryTimeout)
	defer cancel()
	l.copyServices(ctx, w, q)
}

// copyServices copies the logs of services: those that the journal knows from the
// journal, the others from their files.
func (l *systemLog) copyServices(ctx context.Context, w io.Writer, q *logQuery) {
	var units strings.Builder
	_ = l.journal(ctx, &units, "--field", "_SYSTEMD_UNIT") // without a journal there are files
	known := strings.Fields(units.String())
	var journal, others []string
	for _, name := range q.services {
		if slices.Contains(known, name+".service") {
			journal = append(journal, name)
		} else {
			others = append(others, name)
		}
	}
	if len(journal) > 0 {
		err := l.journal(ctx, w, q.journalArguments(journal)...)
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) { // else it says itself what failed
			_, _ = fmt.Fprint(w, "error: journal output not available\n")
		}
	}
	if len(others) > 0 && q.hasOptions() {
		_, _ = fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
		return
	}
	for _, name := range others {
		switch err := l.copyFile(w, name); {
		case errors.Is(err, fs.ErrNotExist):
			_, _ = fmt.Fprintf(w, "\nlog not found for %s\n", name)
		case err != nil:
			_, _ = fmt.Fprintf(w, "\nerror getting log for %s: %v\n", name, err)
		}
	}
}

// copyFile copies the first file that may be the log of a service.
func (l *systemLog) copyFile(w io.Writer, service string) error {
	for _, path := range []string{service, service + ".log", filepath.Join(service, service+".log")} {
		file, err := l.root.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		info, err := file.Stat()
		if err == nil && !info.IsDir() {
			_, err = io.Copy(w, file)
		}
		_ = file.Close() // only read
		if err != nil || !info.IsDir() {
			return err
		}
	}
	return fs.ErrNotExist
}
