package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// bookmarkPeriod is how often a watcher that wants bookmarks gets one, if the
// revision has moved.
const bookmarkPeriod = time.Minute

// watch streams the changes of what the selectors match, after ADDED for what
// StartWatch finds there is to begin with.
// An object that leaves the selection is DELETED, one that enters it ADDED.
func (q operation) watch() error {
	out, err := q.negotiateFor(codec.Accepted{Protobuf: q.Endpoint.Codec.HasProtobuf(), Stream: true, Convert: true})
	if err != nil {
		return err
	}
	options, err := listOptions(q.query(), true, q.Endpoint, q.Info.Name)
	if err != nil {
		return err
	}
	table, err := out.tableOptions()
	if err != nil {
		return err
	}
	timeout := time.Duration(float64(q.server.MinRequestTimeout) * (1 + rand.Float64()))
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0 {
		timeout = timespan.Seconds(*options.TimeoutSeconds)
	}
	ctx, cancel := context.WithTimeout(q.Context, timeout)
	defer cancel()
	q.Context = ctx

	var ok bool
	if q.kept, ok = q.server.Memory.Keep(q.accountable(), watchCost+int64(len(q.http.URL.RawQuery))*selectorCost); !ok {
		return q.outOfMemory()
	}
	w := &watcher{
		endpoint: q.Endpoint,
		selected: watchcache.NewSelection(q.Endpoint.Resource, q.Namespace(), options.LabelSelector, options.FieldSelector),
		output:   out.Output,
		table:    table,
		marks:    options.AllowWatchBookmarks,
		count:    q.server.Metrics.Watches.Of(q.Info.APIGroup, q.Info.APIVersion, q.Info.Resource),
		leave:    q.seat.leave,
		begun:    q.held.Release,
		keep:     func(bytes int) (memory.Held, bool) { return q.server.Memory.Keep(q.accountable(), int64(bytes)) },
	}
	start, err := q.StartWatch(options)
	if err != nil {
		return err
	}
	if start.Initial != nil {
		if err := q.reserve(initialNeed(q.Endpoint, out.Output)); err != nil {
			return err
		}
	}
	stream, err := q.openStream(out.Media)
	if err != nil {
		return err
	}
	defer stream.close()
	w.stream = stream
	return w.run(q.Context, start)
}

// watcher is one watch while it lasts.
type watcher struct {
	endpoint *registry.Endpoint
	selected watchcache.Selection
	output   codec.Output
	table    codec.TableOptions
	marks    bool // bookmarks are wanted
	stream   eventStream
	frames   []byte  // what is to be sent next
	pooled   *[]byte // whose memory frames has; nil while there are none
	count    metrics.Watched
	leave    func() // gives the seat back
	begun    func() // gives back what the initial events needed
	// keep counts what is on the way to the client.
	keep func(bytes int) (memory.Held, bool)
}

// batchSize is how many bytes of events are gathered for one write.
const batchSize = 256 << 10

// run sends events until the context ends or the client goes away.
func (w *watcher) run(ctx context.Context, start registry.WatchStart) error {
	cursor, err := w.endpoint.Kind.WatchScope(start.After, w.selected.Scope())
	if err != nil {
		return w.end(err, start.After)
	}
	if start.Initial != nil {
		if err := w.sendInitial(ctx, *start.Initial, start.Announce); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
	start.Initial = nil
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
	marked, reached := start.After, start.After
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

// sendInitial sends everything there is.
func (w *watcher) sendInitial(ctx context.Context, snapshot watchcache.Snapshot, announce bool) error {
	defer time.AfterFunc(slowAnswer, w.leave).Stop() // others get the seat that a slow client does not need
	var failed error
	ended := w.selected.Visit(ctx, snapshot, watchcache.Position{}, func(e *watchcache.Entry) bool {
		failed = w.add(watchcache.Added.String(), e)
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
		what, left := w.selected.Seen(e)
		var err error
		switch {
		case what == 0:
			continue
		case left:
			err = w.addLeft(e)
		default:
			err = w.add(what.String(), e.Entry)
		}
		if err != nil {
			return err
		}
	}
	return w.flush()
}

// end sends an error as the last event of a watch that has reached a revision.
func (w *watcher) end(err error, revision int64) error {
	if errors.Is(err, store.ErrCompacted) {
		err = apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, w.endpoint.Kind.Floor(w.selected.Scope())))
	} else if errors.Is(err, watchcache.ErrRemoved) {
		return nil
	}
	body, encodeErr := codec.Encode(status.Of(err), w.output.Media)
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
	obj := w.endpoint.Version.New()
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
