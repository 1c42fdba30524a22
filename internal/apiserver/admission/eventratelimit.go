package admission

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// The types of limits of EventRateLimit: one for all events, or one for each
// namespace, user, or pair of a source and an object.
const (
	serverLimit          = "Server"
	namespaceLimit       = "Namespace"
	userLimit            = "User"
	sourceAndObjectLimit = "SourceAndObject"
)

// defaultEventCacheSize is how many namespaces, users or pairs of sources and
// objects a limit remembers, unless the configuration says so.
const defaultEventCacheSize = 4096

// eventLimit is a limit in the plugin's Configuration, in version
// eventratelimit.admission.k8s.io/v1alpha1.
type eventLimit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize,omitempty"`
}

// eventRateLimit refuses writes of events beyond the rates of its configuration.
type eventRateLimit struct {
	onWrite
	limits []*eventBuckets
}

// eventBuckets are the token buckets of one limit.
type eventBuckets struct {
	limit   eventLimit
	clock   clock.PassiveClock
	mu      sync.Mutex // guards the search of buckets, so that a key has one bucket
	buckets *lru.Cache // by the hash of the key
}

func newEventRateLimit(c *Config) admission.Interface {
	p := &eventRateLimit{}
	for _, limit := range c.Configured["EventRateLimit"].eventLimits {
		size := int(limit.CacheSize)
		switch {
		case limit.Type == serverLimit:
			size = 1
		case size == 0:
			size = defaultEventCacheSize
		}
		p.limits = append(p.limits, &eventBuckets{limit: limit, clock: c.Clock, buckets: lru.New(size)})
	}
	return p
}

// readEventLimits reads and validates the configuration of the plugin.
func readEventLimits(raw []byte) ([]eventLimit, error) {
	var c struct {
		metav1.TypeMeta `json:",inline"`
		Limits          []eventLimit `json:"limits"`
	}
	if raw != nil {
		version := schema.GroupVersion{Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1"}
		if err := decodeTyped(raw, version, &c.TypeMeta, &c); err != nil {
			return nil, err
		}
	}
	return c.Limits, validateEventLimits(c.Limits).ToAggregate()
}

func validateEventLimits(limits []eventLimit) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("limits")
	if len(limits) == 0 {
		errs = append(errs, field.Invalid(path, limits, "must not be empty"))
	}
	types := []string{namespaceLimit, serverLimit, sourceAndObjectLimit, userLimit}
	for i, limit := range limits {
		if !slices.Contains(types, limit.Type) {
			errs = append(errs, field.NotSupported(path.Index(i).Child("type"), limit.Type, types))
		}
		if limit.Burst <= 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("burst"), limit.Burst, "must be positive"))
		}
		if limit.QPS <= 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("qps"), limit.QPS, "must be positive"))
		}
		if limit.Type != serverLimit && limit.CacheSize < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("cacheSize"), limit.CacheSize, "must not be negative"))
		}
	}
	return errs
}

// Validate asks every limit, so that a refused event counts for all of them. Both
// groups of events count. Dry runs do not, because nothing is stored.
func (p *eventRateLimit) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	group := a.GetKind().Group
	if a.GetKind().Kind != "Event" || group != corev1.GroupName && group != eventsv1.GroupName || a.IsDryRun() {
		return nil
	}
	var errs []error
	for _, limit := range p.limits {
		if err := limit.accept(a); err != nil {
			errs = append(errs, err)
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return apierrors.NewTooManyRequestsError(err.Error())
	}
	return nil
}

// accept takes a token of the bucket that a write belongs to, or returns an error
// if there is none.
func (b *eventBuckets) accept(a admission.Attributes) error {
	key := b.limit.keyOf(a)
	if b.bucket(key).TryAccept() {
		return nil
	}
	return fmt.Errorf("limit reached on type %v for key %v", b.limit.Type, key)
}

// bucket returns the bucket of a key. One that was dropped is full again.
func (b *eventBuckets) bucket(key string) flowcontrol.PassiveRateLimiter {
	hash := sha256.Sum256([]byte(key)) // bounds the memory, because sources may be of any length
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.buckets.Get(hash); ok {
		return found.(flowcontrol.PassiveRateLimiter)
	}
	bucket := flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(b.limit.QPS), int(b.limit.Burst), b.clock)
	b.buckets.Add(hash, bucket)
	return bucket
}

// keyOf returns what a limit of this type counts a write for.
func (l *eventLimit) keyOf(a admission.Attributes) string {
	switch l.Type {
	case namespaceLimit:
		return a.GetNamespace()
	case userLimit:
		if u := a.GetUserInfo(); u != nil {
			return u.GetName()
		}
	case sourceAndObjectLimit:
		if e, ok := a.GetObject().(*corev1.Event); ok {
			o := &e.InvolvedObject
			return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
		}
	}
	return ""
}
