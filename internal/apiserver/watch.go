package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// bookmarkPeriod is how often a watcher that wants bookmarks gets one, if the
// revision has moved.
const bookmarkPeriod = time.Minute

// watch streams the changes of what the selectors match.
//
//	resourceVersion  sendInitialEvents  begins with
//	"" or "0"        -                  ADDED for everything there is
//	N                -                  the changes after N
//	any              true               ADDED for everything, then the bookmark that says so
//	any              false              the changes from now, or after N
//
// An object that leaves the selection is DELETED, one that enters it ADDED.
func (q *request) watch() error {
	o, err := q.negotiateFor(codec.Accepted{Protobuf: q.endpoint.codec.HasProtobuf(), Stream: true, Convert: true})
	if err != nil {
		return err
	}
	options, err := listOptions(q.query(), true, q.endpoint, q.info.Name)
	if err != nil {
		return err
	}
	table, err := q.tableOptions(o)
	if err != nil {
		return err
	}
	timeout := time.Duration(float64(q.server.MinRequestTimeout) * (1 + rand.Float64()))
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0 {
		timeout = timespan.Seconds(*options.TimeoutSeconds)
	}
	ctx, cancel := context.WithTimeout(q.ctx, timeout)
	defer cancel()
	unhook := context.AfterFunc(*q.server.stop.Load(), cancel)
	defer unhook()
	q.ctx = ctx

	w := &watcher{
		endpoint: q.endpoint,
		selected: newSelected(q.endpoint.resource, q.namespace(), options.LabelSelector, options.FieldSelector),
		output:   o,
		table:    table,
		marks:    options.AllowWatchBookmarks,
		count:    q.server.Metrics.Watches.Of(q.info.APIGroup, q.info.APIVersion, q.info.Resource),
		leave:    q.leave,
		begun:    q.held.Release,
	}
	start, err := q.watchStart(options)
	if err != nil {
		return err
	}
	if start.initial != nil {
		if err := q.reserveInitial(o); err != nil {
			return err
		}
	}
	stream, err := q.openStream(o.Media)
	if err != nil {
		return err
	}
	defer stream.close()
	w.stream = stream
	return w.run(q.ctx, start)
}

// watchStart is where a watch begins.
type watchStart struct {
	after    int64
	initial  *watchcache.Snapshot // to be sent first; nil for none
	announce bool                 // the end of the initial events
}

func (q *request) watchStart(options *internalversion.ListOptions) (watchStart, error) {
	revision, err := parseRevision(options.ResourceVersion)
	if err != nil {
		return watchStart{}, err
	}
	announce := options.SendInitialEvents != nil && *options.SendInitialEvents
	if revision > 0 && !announce {
		return watchStart{after: revision}, nil
	}
	if err := q.waitFor(options.ResourceVersion, "watch"); err != nil {
		return watchStart{}, err
	}
	snapshot := q.endpoint.kind.Snapshot()
	start := watchStart{after: snapshot.Revision, announce: announce}
	if options.SendInitialEvents == nil || announce {
		start.initial = &snapshot
	}
	return start, nil
}

// watcher is one watch while it lasts.
type watcher struct {
	endpoint *endpoint
	selected selected
	output   codec.Output
	table    codec.TableOptions
	marks    bool // bookmarks are wanted
	stream   eventStream
	frames   []byte  // what is to be sent next
	pooled   *[]byte // whose memory frames has; nil while there are none
	count    metrics.Watched
	leave    func() // gives the seat back
	begun    func() // gives back what the initial events needed
}

// batchSize is how many bytes of events are gathered for one write.
const batchSize = 256 << 10

// run sends events until the context ends or the client goes away.
func (w *watcher) run(ctx context.Context, start watchStart) error {
	cursor, err := w.endpoint.kind.WatchScope(start.after, w.scope())
	if err != nil {
		return w.end(err, start.after)
	}
	if start.initial != nil {
		if err := w.sendInitial(ctx, *start.initial, start.announce); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
	start.initial = nil
	w.leave()
	w.begun()

	var wake chan struct{}
	if w.marks {
		wake = make(chan struct{}, 1)
		period := time.NewTicker(bookmarkPeriod)
		defer period.Stop()
		stop := forward(ctx, period.C, wake)
		defer stop()
	}
	marked, reached := start.after, start.after
	for {
		events, revision, err := cursor.Next(ctx, wake)
		ended := ctx.Err() != nil && errors.Is(err, ctx.Err())
		if err != nil && !ended {
			return w.end(err, reached)
		}
		reached = revision
		err = w.sendEvents(events)
		if err == nil && w.marks && revision > marked && (ended || len(events) == 0) {
			err = w.bookmark(revision, false)
			marked = revision
		}
		if ended || err != nil {
			return nil //nolint:nilerr // the client is gone, or knows all that it waited for
		}
	}
}

// forward passes ticks on until the context ends; stop waits for the end.
func forward(ctx context.Context, ticks <-chan time.Time, wake chan<- struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ticks:
				select {
				case wake <- struct{}{}:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// scope is the narrowest log that holds all that can be selected.
func (w *watcher) scope() watchcache.Scope {
	s := w.selected
	if s.single() {
		return watchcache.Scope{Namespace: s.namespace, Name: s.name}
	}
	if s.index.Field != "" {
		return s.index
	}
	return watchcache.Scope{Namespace: s.namespace}
}

// sendInitial sends everything there is.
func (w *watcher) sendInitial(ctx context.Context, snapshot watchcache.Snapshot, announce bool) error {
	defer time.AfterFunc(slowAnswer, w.leave).Stop() // others get the seat that a slow client does not need
	var failed error
	ended := w.selected.visit(ctx, snapshot, watchcache.Position{}, func(e *watchcache.Entry) bool {
		failed = w.add("ADDED", e)
		return failed == nil
	})
	if failed == nil {
		failed = ended
	}
	if failed == nil && announce && w.marks {
		return w.bookmark(snapshot.Revision, true)
	}
	if failed != nil {
		return failed
	}
	return w.flush()
}

// sendEvents sends what of the events the client selected.
func (w *watcher) sendEvents(events []*watchcache.Event) error {
	for _, e := range events {
		if !w.selected.inNamespace(e.Entry) {
			continue
		}
		eventType, left := w.seen(e)
		var err error
		switch {
		case eventType == "":
			continue
		case left:
			err = w.addLeft(e)
		default:
			err = w.add(eventType, e.Entry)
		}
		if err != nil {
			return err
		}
	}
	return w.flush()
}

// seen is what a change is to this watcher: "" for nothing. left says that
// the object is still there but no longer selected.
func (w *watcher) seen(e *watchcache.Event) (eventType string, left bool) {
	before := e.Previous != nil && w.selected.matches(e.Previous)
	if e.Type == watchcache.Deleted {
		if before {
			return "DELETED", false
		}
		return "", false
	}
	now := w.selected.matches(e.Entry)
	switch {
	case now && before:
		return "MODIFIED", false
	case now:
		return "ADDED", false
	case before:
		return "DELETED", true
	}
	return "", false
}

// end sends an error as the last event of a watch that has reached a revision.
func (w *watcher) end(err error, revision int64) error {
	if errors.Is(err, store.ErrCompacted) {
		err = errExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, w.endpoint.kind.Floor(w.scope())))
	} else if errors.Is(err, watchcache.ErrRemoved) {
		return nil
	}
	body, encodeErr := codec.Encode(statusOf(err), w.output.Media)
	if encodeErr != nil {
		return encodeErr
	}
	w.gather()
	w.frames = codec.AppendFrame(w.frames, w.output.Media, "ERROR", body)
	_ = w.flush()
	return nil
}

// bookmark tells the client how far it knows everything; initial says that
// the initial events are complete.
func (w *watcher) bookmark(revision int64, initial bool) error {
	obj := w.endpoint.version.New()
	obj.SetResourceVersion(fmt.Sprint(revision))
	if initial {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	body, err := w.encode(&watchcache.Entry{Object: obj, Revision: revision})
	if err != nil {
		return err
	}
	w.gather()
	w.frames = codec.AppendFrame(w.frames, w.output.Media, "BOOKMARK", body)
	return w.flush()
}
