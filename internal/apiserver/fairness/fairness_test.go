package fairness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/metrics"
)

// cluster is a controller with a number of seats. Each user is a flow of one
// level, "shop".
type cluster struct {
	*Controller
	t  testing.TB
	mu sync.Mutex // guards what requests in the background note
}

const queueTimeout = 15 * time.Second

func newCluster(t testing.TB, seats int, objects ...any) *cluster {
	c := &cluster{Controller: New(Config{Seats: seats, QueueTimeout: queueTimeout, Clock: clock.RealClock{}, Metrics: metrics.NewAPIServer(nil).Fairness}), t: t}
	c.configure(objects...)
	return c
}

func (c *cluster) configure(objects ...any) {
	var schemas []*flowcontrolv1.FlowSchema
	var levels []*flowcontrolv1.PriorityLevelConfiguration
	for _, o := range objects {
		switch o := o.(type) {
		case *flowcontrolv1.FlowSchema:
			schemas = append(schemas, o)
		case *flowcontrolv1.PriorityLevelConfiguration:
			levels = append(levels, o)
		}
	}
	c.Configure(schemas, levels)
}

// toLevel returns a schema that makes each of the users a flow of a level.
func toLevel(level string, users ...string) *flowcontrolv1.FlowSchema {
	return made("to-"+level, level, 10, func(s *flowcontrolv1.FlowSchemaSpec) {
		s.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType}
		s.Rules[0].Subjects = nil
		for _, u := range users {
			s.Rules[0].Subjects = append(s.Rules[0].Subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: u}})
		}
	})
}

// limited returns a level that refuses requests without a seat; change may
// configure queues.
func limited(name string, shares int32, change ...func(*flowcontrolv1.LimitedPriorityLevelConfiguration)) *flowcontrolv1.PriorityLevelConfiguration {
	l := &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: ptr.To(shares),
		LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		BorrowingLimitPercent:    ptr.To[int32](0),
	}
	for _, c := range change {
		c(l)
	}
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-level"},
		Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: l},
	}
}

func queues(queues, hand, length int32) func(*flowcontrolv1.LimitedPriorityLevelConfiguration) {
	return func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
		l.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
			Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: length}}
	}
}

// begin begins a request of a user.
func (c *cluster) begin(ctx context.Context, r *Request, name string, seats int) bool {
	return c.Begin(ctx, r, someone(name), resourceRequest("list", "", "pods", "default"), seats, time.Now())
}

// hold takes seats, one at least, until the returned function is called.
func (c *cluster) hold(name string, seats int) (release func()) {
	c.t.Helper()
	r := &Request{}
	if !c.begin(context.Background(), r, name, seats) {
		c.t.Fatalf("a request of %s was refused", name)
	}
	return func() { r.End(time.Now()) }
}

// later begins a request in the background; the channel receives the result.
func (c *cluster) later(ctx context.Context, name string, seats int, order *[]string) <-chan bool {
	done := make(chan bool, 1)
	go func() {
		r := &Request{}
		ok := c.begin(ctx, r, name, seats)
		if ok && order != nil {
			c.mu.Lock()
			*order = append(*order, name)
			c.mu.Unlock()
			r.End(time.Now())
		}
		done <- ok
	}()
	return done
}

func (c *cluster) level(name string) *level {
	for _, l := range c.sortedLevels() {
		if l.name == name {
			return l
		}
	}
	c.t.Fatalf("no level %s", name)
	return nil
}

func TestRejectingLevel(t *testing.T) {
	c := newCluster(t, 20, toLevel("shop", "jane", "joe"), limited("shop", 5))
	// catch-all has 5 shares, too: half of the seats each
	var releases []func()
	for range 10 {
		releases = append(releases, c.hold("jane", 0))
	}
	if c.begin(t.Context(), &Request{}, "joe", 0) {
		t.Error("an eleventh request began at a level of ten seats")
	}
	c.hold("others", 0)() // at catch-all, whose seats are its own
	releases[0]()
	releases[0]() // gives nothing back twice
	c.hold("joe", 0)
	if c.begin(t.Context(), &Request{}, "joe", 0) {
		t.Error("two requests began on one seat")
	}
}

func TestExemptIsNeverRefused(t *testing.T) {
	c := newCluster(t, 1)
	for range 100 {
		r := &Request{}
		if !c.Begin(t.Context(), r, someone("admin", user.SystemPrivilegedGroup), resourceRequest("get", "", "pods", "a"), 0, time.Now()) {
			t.Fatal("refused")
		}
	}
}

// A queue dispatches requests in the order of their arrival.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, toLevel("shop", "a", "b", "c"), limited("shop", 5, queues(1, 1, 10)))
		release := c.hold("a", 0)
		var order []string
		for _, name := range []string{"c", "a", "b"} {
			c.later(t.Context(), name, 0, &order)
			synctest.Wait()
		}
		release()
		synctest.Wait()
		if !slices.Equal(order, []string{"c", "a", "b"}) {
			t.Errorf("order %v", order)
		}
	})
}

// served is the service that clients received.
type served struct {
	requests, seats int
	waited          time.Duration // longest
}

// load lets clients of each user send requests of a tenth of a second in
// sequence, and returns the service that they received in the given time.
func (c *cluster) load(duration time.Duration, clients, seats map[string]int) map[string]served {
	ctx, stop := context.WithCancel(c.t.Context())
	time.AfterFunc(duration, stop)
	var all sync.WaitGroup
	got := map[string]served{}
	for name, n := range clients {
		for range n {
			all.Go(func() {
				for ctx.Err() == nil {
					r := &Request{}
					if !c.begin(ctx, r, name, seats[name]) {
						continue
					}
					time.Sleep(100 * time.Millisecond)
					r.End(time.Now())
					c.mu.Lock()
					s := got[name]
					got[name] = served{s.requests + 1, s.seats + r.Seats(), max(s.waited, r.Waited)}
					c.mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	return got
}

// A user with hundreds of waiting requests does not keep a user with few
// requests from half of the seats.
func TestSmallUserBesideLargeUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8, toLevel("shop", "elephant", "mouse"), limited("shop", 5, queues(64, 4, 1000)))
		got := c.load(10*time.Second, map[string]int{"elephant": 200, "mouse": 2}, nil)
		// Four seats serve ten requests per second each. Alone, the two clients
		// of the small user could do 200 in ten seconds.
		if m := got["mouse"]; m.requests < 90 || m.waited > 500*time.Millisecond {
			t.Errorf("the mouse did %d requests and waited up to %v", m.requests, m.waited)
		}
		if total := got["mouse"].requests + got["elephant"].requests; total < 390 {
			t.Errorf("%d requests in all: seats were left empty", total)
		}
	})
}

// A flow of wide requests gets as many seat seconds as one of narrow ones.
func TestWideAndNarrowRequestsShareSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 160, toLevel("shop", "wide", "narrow"), limited("shop", 5, queues(1<<20, 2, 1000)))
		got := c.load(20*time.Second, map[string]int{"wide": 200, "narrow": 200}, map[string]int{"wide": 10})
		if ratio := float64(got["wide"].seats) / float64(got["narrow"].seats); ratio < 0.8 || ratio > 1.25 {
			t.Errorf("seats %v: the wide ones have %.2f times those of the narrow ones", got, ratio)
		}
	})
}

// A request that is too wide for the free seats is not overtaken forever.
func TestWideRequestIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 80, toLevel("shop", "wide", "narrow"), limited("shop", 5, queues(1, 1, 100)))
		var releases []func()
		for range 40 {
			releases = append(releases, c.hold("narrow", 0))
		}
		var order []string
		c.later(t.Context(), "wide", 3, &order)
		synctest.Wait()
		c.later(t.Context(), "narrow", 0, &order)
		synctest.Wait()
		releases[0]()
		synctest.Wait()
		if len(order) > 0 {
			t.Errorf("%v overtook", order)
		}
		releases[1]()
		releases[2]()
		synctest.Wait()
		if !slices.Equal(order, []string{"wide", "narrow"}) {
			t.Errorf("order %v", order)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	full := func(t *testing.T) *cluster {
		c := newCluster(t, 2, toLevel("shop", "a", "b"), limited("shop", 5, queues(1, 1, 2)))
		c.hold("a", 0)
		return c
	}
	within := func(t *testing.T, timeout time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		t.Cleanup(cancel)
		return ctx
	}
	for _, test := range []struct {
		name string
		ctx  func(*testing.T) context.Context
		want time.Duration
	}{
		{"after a quarter of the request's time", func(t *testing.T) context.Context { return within(t, 20*time.Second) }, 5 * time.Second},
		{"after the server's patience where there is no deadline", func(t *testing.T) context.Context { return t.Context() }, queueTimeout},
		{"after a minute at the latest", func(t *testing.T) context.Context { return within(t, time.Hour) }, time.Minute},
		{"at once with the client", func(t *testing.T) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return ctx
		}, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := full(t)
				began := time.Now()
				if <-c.later(test.ctx(t), "b", 0, nil) {
					t.Fatal("it started without a free seat")
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("after %v, want %v", took, test.want)
				}
				if l := c.level("shop"); l.waiting != 0 || len(l.active) != 0 {
					t.Errorf("%d requests remain in %d queues", l.waiting, len(l.active))
				}
			})
		})
	}
	t.Run("at once where the queue is full", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := full(t)
			ctx, cancel := context.WithCancel(t.Context())
			c.later(ctx, "b", 0, nil)
			c.later(ctx, "b", 0, nil)
			synctest.Wait()
			if c.begin(ctx, &Request{}, "b", 0) {
				t.Error("three requests wait in a queue for two")
			}
			cancel()
		})
	})
}

// Flows are dealt to few queues each, so that a flow that fills its queues
// leaves room for most others.
func TestShuffleSharding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := []string{"elephant"}
		for i := range 100 {
			users = append(users, fmt.Sprint("mouse", i))
		}
		c := newCluster(t, 2, toLevel("shop", users...), limited("shop", 5, queues(128, 6, 4)))
		defer c.hold("elephant", 0)()
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			c.later(ctx, "elephant", 0, nil)
		}
		synctest.Wait()
		l := c.level("shop")
		if l.waiting != 6*4 || len(l.active) != 6 {
			t.Errorf("%d requests of one flow wait in %d queues, want 24 in 6", l.waiting, len(l.active))
		}
		refused := 0
		for _, mouse := range users[1:] {
			done := c.later(ctx, mouse, 0, nil)
			synctest.Wait()
			select {
			case <-done:
				refused++
			default:
			}
		}
		if refused > 0 {
			t.Errorf("%d of 100 mice were refused for the elephant", refused)
		}
		cancel()
		synctest.Wait()
	})
}

func TestRequestsOfARemovedLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, toLevel("shop", "a"), limited("shop", 5, queues(8, 2, 10)))
		var releases []func()
		for range 10 {
			releases = append(releases, c.hold("a", 0))
		}
		done := c.later(t.Context(), "a", 0, nil)
		synctest.Wait()
		c.configure(toLevel("shop", "a"))
		if l := c.level("shop"); !l.removed {
			t.Error("the level is still there")
		}
		c.hold("a", 0) // at catch-all
		releases[0]()
		synctest.Wait()
		if ok := <-done; !ok {
			t.Error("who waited was refused when the level went")
		}
		for _, release := range releases[1:] {
			release()
		}
	})
}

func TestChangedNumberOfQueues(t *testing.T) {
	for _, test := range []struct {
		name  string
		level *flowcontrolv1.PriorityLevelConfiguration
	}{
		{"fewer", limited("shop", 5, queues(1, 1, 10))},
		{"more", limited("shop", 5, queues(128, 4, 10))},
		{"none", limited("shop", 5)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2, toLevel("shop", "a"), limited("shop", 5, queues(16, 4, 10)))
				release := c.hold("a", 0)
				var order []string
				for range 8 {
					c.later(t.Context(), "a", 0, &order)
				}
				synctest.Wait()
				c.configure(toLevel("shop", "a"), test.level)
				release()
				synctest.Wait()
				if len(order) != 8 {
					t.Errorf("%d of 8 requests went on", len(order))
				}
			})
		})
	}
}

func BenchmarkBegin(b *testing.B) {
	level := limited("shop", 100, queues(128, 6, 50))
	c := newCluster(b, 600, toLevel("shop", "jane"), level)
	for name, who := range map[string]user.Info{"queueing": someone("jane"), "exempt": someone("admin", user.SystemPrivilegedGroup), "rejecting": someone("joe")} {
		info := resourceRequest("list", "", "pods", "default")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := time.Now()
			r := &Request{}
			for b.Loop() {
				*r = Request{}
				if !c.Begin(b.Context(), r, who, info, 0, now) {
					b.Fatal("refused")
				}
				r.End(now)
			}
		})
	}
}
