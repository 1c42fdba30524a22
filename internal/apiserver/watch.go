package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// bookmarkPeriod is the interval of bookmarks, which are sent if the revision
// has changed.
const bookmarkPeriod = time.Minute

// serveWatch streams the changes of the objects that match the selectors, after
// ADDED events for the initial objects of StartWatch. An object that begins to
// match is ADDED, and one that ceases to match is DELETED.
func (o operation) serveWatch() error {
	out, err := negotiateFor(o.q, codec.Accepted{Protobuf: o.call.Endpoint.Codec.HasProtobuf(), Stream: true, Convert: true})
	if err != nil {
		return err
	}
	options, err := listOptions(o.q.query(), true, o.call)
	if err != nil {
		return err
	}
	table, err := out.tableOptions()
	if err != nil {
		return err
	}
	ctx, cancel := o.q.server.limits.limitWatch(o.call.Context, options)
	defer cancel()
	o.call.Context = ctx

	held, ok := &o.q.held, false
	held.unread.Release() // of the head alone
	if held.unread, ok = held.server.memory.Retain(held.watchTenant(o.call.Namespace()), int64(watchCost+held.head)); !ok {
		return errOutOfMemory
	}
	w := &watcher{
		endpoint:       o.call.Endpoint,
		selected:       watchcache.NewSelection(o.call.Endpoint.Resource, o.call.Namespace(), options.LabelSelector, options.FieldSelector),
		output:         out.Output,
		table:          table,
		bookmarks:      options.AllowWatchBookmarks,
		count:          o.q.server.registry.Metrics.Watches.Of(o.call.Info.APIGroup, o.call.Info.APIVersion, o.call.Info.Resource),
		listed:         func() { o.q.server.watchListed(o.q.call.Now, &o.call.Info) },
		releaseSeat:    held.seat.leave,
		releaseInitial: held.working.Release,
		keep:           held.retain,
	}
	start, err := o.call.StartWatch(options)
	if err != nil {
		return err
	}
	if start.Initial != nil {
		if err := held.reserve(initialNeed(o.call.Endpoint, out.Output)); err != nil {
			return err
		}
	}
	compress := start.Announce && options.AllowWatchBookmarks && o.call.Registry.Features.Enabled(feature.WatchListCompression)
	stream, ctx, err := o.q.response.openStream(ctx, o.q.http, out.Media, compress)
	if err != nil {
		return err
	}
	defer stream.close()
	w.stream, o.call.Context = stream, ctx
	return w.run(ctx, start)
}

// limitWatch returns the context of a watch. It lasts as long as the client asks,
// or a random time from MinRequestTimeout to twice that.
func (c *LimitConfig) limitWatch(ctx context.Context, options *internalversion.ListOptions) (context.Context, context.CancelFunc) {
	switch least := timespan.Seconds(int64(c.MinRequestTimeout)); {
	case options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0:
		return context.WithTimeout(ctx, timespan.Seconds(*options.TimeoutSeconds))
	case least > 0:
		return context.WithTimeout(ctx, time.Duration(float64(least)*(1+rand.Float64())))
	}
	return context.WithCancel(ctx)
}

// watcher is the state of one watch.
type watcher struct {
	endpoint       *registry.Endpoint
	selected       watchcache.Selection
	output         codec.Output
	table          codec.TableOptions
	bookmarks      bool // the client wants bookmarks
	stream         eventStream
	frames         []byte  // buffered events
	pooled         *[]byte // the buffer of frames, from frameBuffers; nil if none
	count          metrics.Watched
	listed         func() // records that the initial events have been sent
	releaseSeat    func() // releases the seat
	releaseInitial func() // releases the memory of the initial events
	// keep counts bytes that the client has not read yet.
	keep func(bytes int) (memory.Reservation, bool)
}

// batchSize is the number of buffered bytes at which events are sent.
const batchSize = 256 << 10

// run sends events until the context ends or the client disconnects.
func (w *watcher) run(ctx context.Context, start registry.WatchStart) error {
	cursor, err := w.endpoint.Kind.WatchScope(start.After, w.selected.Scope())
	if err != nil {
		return w.end(err, start.After)
	}
	if start.Initial != nil {
		if err := w.sendInitial(ctx, *start.Initial, start.Announce); err != nil {
			return w.giveUp(err, start.After)
		}
	}
	start.Initial = nil
	w.releaseSeat()
	w.releaseInitial()

	var wake chan struct{}
	if w.bookmarks {
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
		if err == nil && w.bookmarks && revision > marked && (ended || len(events) == 0) {
			err = w.bookmark(revision, false)
			marked = revision
		}
		if err != nil {
			return w.giveUp(err, reached)
		}
		if ended {
			return nil
		}
	}
}

// giveUp ends a watch after err. If that is about an object, the client is told, as by a
// get of it. Otherwise the client is gone.
func (w *watcher) giveUp(err error, revision int64) error {
	if about, ok := errors.AsType[unencodable](err); ok {
		return w.end(about.error, revision)
	}
	return nil
}

// forward forwards ticks to wake until the context ends or stop is called. stop
// waits for the goroutine.
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

// sendInitial sends ADDED events for the selected objects of a snapshot, and a
// bookmark that announces their end if announce is set.
func (w *watcher) sendInitial(ctx context.Context, snapshot watchcache.Snapshot, announce bool) error {
	defer time.AfterFunc(slowAnswer, w.releaseSeat).Stop() // a slow client keeps no seat
	var failed error
	ended := w.visitInitial(ctx, snapshot, func(e *watchcache.Entry) bool {
		if failed = w.unselectable(); failed == nil {
			failed = w.add(watchcache.Added.String(), e)
		}
		return failed == nil
	})
	if failed == nil {
		failed = ended
	}
	if failed == nil && announce && w.bookmarks {
		return w.bookmark(snapshot.Revision, true)
	}
	if failed != nil {
		return failed
	}
	return w.flush()
}

// visitInitial calls visit for the selected objects of a snapshot until it returns false.
// A webhook that converts them is asked for many at a time.
func (w *watcher) visitInitial(ctx context.Context, snapshot watchcache.Snapshot, visit func(*watchcache.Entry) bool) error {
	if !w.asksWebhook() {
		err := w.selected.Visit(ctx, snapshot, watchcache.Position{}, visit)
		return cmp.Or(w.unselectable(), err)
	}
	var entries []*watchcache.Entry
	err := w.selected.Visit(ctx, snapshot, watchcache.Position{}, func(e *watchcache.Entry) bool {
		entries = append(entries, e)
		return true
	})
	if err = cmp.Or(w.unselectable(), err); err != nil {
		return err
	}
	if failed := watchcache.ConvertEach(w.endpoint.Version, entries, func(e *watchcache.Entry) bool {
		err = ctx.Err()
		return err == nil && visit(e)
	}); failed != nil {
		return unencodable{failed}
	}
	return err
}

// asksWebhook reports whether a webhook converts the objects that are sent. Metadata
// alone is that of the stored version.
func (w *watcher) asksWebhook() bool {
	return w.endpoint.Version.ConvertAll != nil && w.output.Convert.Kind != "PartialObjectMetadata"
}

// sendEvents sends the selected ones of events.
func (w *watcher) sendEvents(events []*watchcache.Event) error {
	for _, e := range events {
		what, left := w.selected.EventFor(e)
		err := w.unselectable()
		switch {
		case err != nil:
		case what == 0:
			continue
		case left:
			err = w.addDeleted(e)
		default:
			err = w.add(what.String(), e.Entry)
		}
		if err != nil {
			return err
		}
	}
	return w.flush()
}

// unselectable returns an error if the selectors could not read an object.
func (w *watcher) unselectable() error {
	if err := w.selected.Err(); err != nil {
		return unencodable{err}
	}
	return nil
}

// end sends err as the last event of a watch that has reached a revision.
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
	w.acquireBuffer()
	w.frames = codec.AppendFrame(w.frames, w.output.Media, "ERROR", body)
	_ = w.flush()
	return nil
}

// bookmark sends a BOOKMARK event with a revision. initial marks the end of the
// initial events.
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
	w.acquireBuffer()
	w.frames = codec.AppendFrame(w.frames, w.output.Media, "BOOKMARK", body)
	err = w.flush()
	if err == nil && initial {
		w.listed()
	}
	return err
}
