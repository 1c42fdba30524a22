package admission

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// eventWrites passes writes of events through limits, and returns a letter for
// each: a if it is accepted, r if it is refused. A write has the form
// "namespace/user/component", "wait" lets a second pass.
func eventWrites(t *testing.T, limits []eventLimit, writes string) (outcome string, last string) {
	t.Helper()
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := config(objectstest.NewMemory())
	c.Clock, c.Configured = now, map[string]Configuration{"EventRateLimit": {eventLimits: limits}}
	p := newEventRateLimit(c)
	for one := range strings.FieldsSeq(writes) {
		if one == "wait" {
			now.SetTime(now.Now().Add(time.Second))
			continue
		}
		parts := strings.Split(one, "/")
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: parts[0], Name: "e"}, Source: corev1.EventSource{Component: parts[2]}}
		got := run(t, p, write{kind: "Event", resource: "events", obj: e, user: &user.DefaultInfo{Name: parts[1]}})
		if got == "" {
			outcome += "a"
			continue
		}
		outcome, last = outcome+"r", got
	}
	return outcome, last
}

func TestEventRateLimit(t *testing.T) {
	limit := func(kind string, burst, cache int32) eventLimit {
		return eventLimit{Type: kind, QPS: 1, Burst: burst, CacheSize: cache}
	}
	for name, test := range map[string]struct {
		limits                []eventLimit
		writes, want, message string
	}{
		"server":                         {limits: []eventLimit{limit(serverLimit, 2, 0)}, writes: "a/x/c b/y/d a/x/c wait a/x/c a/x/c", want: "aarar", message: "Too many requests: limit reached on type Server for key "},
		"namespace":                      {limits: []eventLimit{limit(namespaceLimit, 2, 9)}, writes: "a/x/c a/y/d b/x/c a/x/c b/x/c b/x/c wait a/x/c", want: "aaarara", message: "limit reached on type Namespace for key b"},
		"user":                           {limits: []eventLimit{limit(userLimit, 1, 0)}, writes: "a/x/c b/x/d a/y/c", want: "ara", message: "limit reached on type User for key x"},
		"source and object":              {limits: []eventLimit{limit(sourceAndObjectLimit, 1, 0)}, writes: "a/x/c b/y/c a/x/d", want: "ara", message: "limit reached on type SourceAndObject for key c"},
		"a dropped bucket is full again": {limits: []eventLimit{limit(namespaceLimit, 1, 2)}, writes: "a/x/c a/x/c b/x/c c/x/c a/x/c", want: "araaa", message: "Namespace"},
		"a bucket in use is kept":        {limits: []eventLimit{limit(namespaceLimit, 1, 2)}, writes: "a/x/c b/x/c a/x/c c/x/c a/x/c", want: "aarar", message: "Namespace"},
		"several": {limits: []eventLimit{limit(serverLimit, 3, 0), limit(userLimit, 1, 0)}, writes: "a/x/c a/x/c a/x/c a/x/c", want: "arrr",
			message: "Too many requests: [limit reached on type Server for key , limit reached on type User for key x]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, message := eventWrites(t, test.limits, test.writes)
			if got != test.want || !strings.Contains(message, test.message) {
				t.Errorf("%s, %q, want %s, %q", got, message, test.want, test.message)
			}
		})
	}
}

// TestEventKeys checks that each part of the source and the object is in the key.
func TestEventKeys(t *testing.T) {
	limit := eventLimit{Type: sourceAndObjectLimit}
	keys := map[string]bool{}
	for _, change := range []func(*corev1.Event){
		func(*corev1.Event) {},
		func(e *corev1.Event) { e.Source.Component = "1" },
		func(e *corev1.Event) { e.Source.Host = "2" },
		func(e *corev1.Event) { e.InvolvedObject.Kind = "3" },
		func(e *corev1.Event) { e.InvolvedObject.Namespace = "4" },
		func(e *corev1.Event) { e.InvolvedObject.Name = "5" },
		func(e *corev1.Event) { e.InvolvedObject.UID = types.UID("6") },
		func(e *corev1.Event) { e.InvolvedObject.APIVersion = "7" },
	} {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "e"}}
		change(e)
		keys[limit.keyOf(write{kind: "Event", resource: "events", obj: e}.attributes())] = true
	}
	if len(keys) != 8 {
		t.Errorf("the keys are %v", keys)
	}
}

// TestWhatEventLimitsCount checks that only stored events count, of both groups.
func TestWhatEventLimitsCount(t *testing.T) {
	c := config(objectstest.NewMemory())
	c.Configured = map[string]Configuration{"EventRateLimit": {eventLimits: []eventLimit{{Type: serverLimit, QPS: 1, Burst: 1}}}}
	c.Clock = clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := newEventRateLimit(c)
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "e"}}
	for i, w := range []write{
		{kind: "Pod", resource: "pods", obj: pod(nil)},
		{kind: "Event", resource: "events", obj: e, dryRun: true},
		{kind: "Event", resource: "events.k8s.io/events", obj: e},
	} {
		if got := run(t, p, w); got != "" {
			t.Errorf("write %d: %s", i, got)
		}
	}
	if got := run(t, p, write{kind: "Event", resource: "events", obj: e}); !strings.Contains(got, "limit reached") {
		t.Errorf("an event after the last token: %q", got)
	}
}
