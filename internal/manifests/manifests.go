// Package manifests applies the objects in the files of directories, and applies a
// file again when it changes:
//
//	directories ─scan─► files ─decode─► objects ─server-side apply─► API server
//	                      ▲                 │
//	                      └── again later ──┴─ what failed
//
// Files that depend on each other may be in any order, such as custom resources and
// their definitions: what fails is tried again. Removing a file, or an object from
// a file, removes nothing from the cluster.
package manifests

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// scanPeriod is the time between two scans of the directories.
	scanPeriod = 2 * time.Second
	// minRetry and maxRetry bound the time before a file that failed is applied
	// again. It doubles with each failure.
	minRetry, maxRetry = time.Second, time.Minute
	// slow is how long one object takes, such as one whose webhook does not answer,
	// for which the rest of its file and the other files do not wait again.
	slow = 5 * time.Second
)

// Applier applies the files of directories.
type Applier struct {
	// Directories are searched with their subdirectories, in this order. One that
	// is missing has no files.
	Directories []string
}

// state is the state of applying a file.
type state struct {
	seen     stamp             // at the last scan
	stamp    stamp             // of the content that was applied or that failed; zero for none
	digest   [sha256.Size]byte // of the content, if it is applied; zero otherwise
	err      error             // why it is not applied; nil if it is
	slow     bool              // an object failed only after the duration slow
	failures int               // in a row
	next     time.Time
}

// due reports whether a file has to be applied. One that is still being written has
// not: applying its first half would remove fields from objects.
func (s *state) due(f file, at time.Time) bool {
	if s.stamp != f.stamp {
		return f.settled
	}
	return s.err != nil && !at.Before(s.next)
}

// failed records why a file could not be applied.
func (s *state) failed(err error, at time.Time) {
	retry := minRetry << min(s.failures, 10)
	s.err, s.failures, s.next, s.digest = err, s.failures+1, at.Add(min(retry, maxRetry)), [sha256.Size]byte{}
}

// RunWith applies the files, with the rights of a cluster admin, until ctx ends.
// It reports files that cannot be applied as the condition Manifests of the
// component that it runs in.
func (a *Applier) RunWith(ctx context.Context, provider client.Provider) error {
	admin, err := provider.As("kubernetes-admin", "system:masters", "system:authenticated")
	if err != nil {
		return err
	}
	discovered := memory.NewMemCacheClient(admin.Kubernetes.Discovery())
	w := &worker{
		directories: a.Directories, states: map[string]*state{},
		objects: &target{restmapper.NewDeferredDiscoveryRESTMapper(discovered), admin.Dynamic},
		report: func(err error) {
			if ctx.Err() == nil {
				supervise.Report(ctx, "Manifests", err)
			}
		},
	}
	again := time.NewTicker(scanPeriod)
	defer again.Stop()
	for {
		w.sync(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// applier applies objects.
type applier interface {
	// reset makes kinds known that have come since.
	reset()
	apply(ctx context.Context, o *unstructured.Unstructured) error
}

// worker has the state of all files.
type worker struct {
	directories []string
	states      map[string]*state // by path
	objects     applier
	report      func(error) // receives what is wrong with the files, or nil
	scanErr     string      // the error of the last scan, which is logged once
}

// sync applies the files that are due. It reports what is wrong with the files, one
// error for each.
func (w *worker) sync(ctx context.Context) {
	files, scanErr := scan(w.directories)
	w.logScan(ctx, scanErr)
	states := make(map[string]*state, len(files))
	for i := range files {
		f := &files[i]
		s := w.states[f.path]
		if s == nil {
			s = &state{}
		}
		f.settled = f.settled || s.seen == f.stamp
		s.seen, states[f.path] = f.stamp, s
	}
	w.states = states
	report := func() {
		errs := []error{scanErr}
		for _, f := range files {
			if err := states[f.path].err; err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.path, err))
			}
		}
		w.report(errors.Join(errs...))
	}
	// What one file brings may be what another waits for.
	for changed := w.pass(ctx, w.due(files), report); changed && ctx.Err() == nil; {
		changed = w.pass(ctx, w.failed(files), report)
	}
	report()
}

// due returns the files that have to be applied. Of those that were slow it returns
// one, as the last, for which the others then do not wait.
func (w *worker) due(files []file) (due []file) {
	var late []file
	for _, f := range files {
		switch s := w.states[f.path]; {
		case !s.due(f, time.Now()):
		case s.slow && s.stamp == f.stamp:
			late = append(late, f)
		default:
			due = append(due, f)
		}
	}
	if len(late) == 0 {
		return due
	}
	return append(due, slices.MinFunc(late, func(a, b file) int {
		return cmp.Compare(w.states[a.path].next.UnixNano(), w.states[b.path].next.UnixNano())
	}))
}

// failed returns the files that have failed, except for those that were slow.
func (w *worker) failed(files []file) (failed []file) {
	for _, f := range files {
		if s := w.states[f.path]; s.err != nil && !s.slow && s.stamp == f.stamp {
			failed = append(failed, f)
		}
	}
	return failed
}

// pass applies files, and calls report after one that was slow. It reports whether
// it has applied one.
func (w *worker) pass(ctx context.Context, files []file, report func()) (changed bool) {
	w.objects.reset()
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		if w.file(ctx, f) {
			changed = true
		}
		if w.states[f.path].slow {
			report()
		}
	}
	return changed
}

// file applies a file, unless its content is the one that is applied. It reports
// whether it has.
func (w *worker) file(ctx context.Context, f file) (applied bool) {
	s := w.states[f.path]
	if s.stamp != f.stamp {
		*s = state{seen: s.seen, stamp: f.stamp, digest: s.digest}
	}
	before, log := s.err, klog.FromContext(ctx)
	content, err := f.read()
	digest := sha256.Sum256(content)
	if err == nil && s.digest == digest {
		return false
	}
	count := 0
	if err == nil {
		count, s.slow, err = w.apply(ctx, content)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		s.failed(err, time.Now())
		if before == nil || before.Error() != err.Error() {
			log.Error(err, "Cannot apply a manifest; trying again", "file", f.path)
		}
		return false
	}
	*s = state{seen: s.seen, stamp: f.stamp, digest: digest}
	log.Info("Applied a manifest", "file", f.path, "objects", count)
	return true
}

// apply applies the objects in the content of a file, all of them even if some
// fail, but none after one that was slow to fail. It returns their number.
func (w *worker) apply(ctx context.Context, content []byte) (count int, late bool, err error) {
	objects, err := decode(content)
	if err != nil {
		return 0, false, err
	}
	var errs []error
	for i, o := range objects {
		began := time.Now()
		err := w.objects.apply(ctx, o)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", nameOf(o), err))
		if late = time.Since(began) >= slow; late {
			if rest := len(objects) - i - 1; rest > 0 {
				errs = append(errs, fmt.Errorf("the %d objects after it in the file wait", rest))
			}
			break
		}
	}
	return len(objects), late, firstFew(errs)
}

// firstFew joins the first few errors of many.
func firstFew(errs []error) error {
	const few = 5
	if more := len(errs) - few; more > 0 {
		errs = append(errs[:few:few], fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(errs...)
}

// logScan logs what keeps files from being found, when it changes.
func (w *worker) logScan(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != w.scanErr && err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read all manifests; trying again")
	}
	w.scanErr = text
}

// Check returns an error if the content of a file is not one that an Applier
// could apply, as far as that can be said without an API server. name is the name
// of the file.
func Check(name string, content []byte) error {
	if !isManifest(name) {
		return fmt.Errorf("want a file whose name ends with .yaml, .yml or .json, not %s", filepath.Base(name))
	}
	if len(content) > MaxSize {
		return errTooLarge()
	}
	_, err := decode(content)
	return err
}
