// Package image pulls images to the node and removes unused ones. It stands for
// upstream's image manager, image garbage collector and image pull manager.
package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Error is why a container's image is not available. The status of the
// container shows Reason.
type Error struct {
	Reason  string
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// The reasons of an Error.
const (
	ErrImagePull      = "ErrImagePull"
	ImagePullBackOff  = "ImagePullBackOff"
	ErrImageNeverPull = "ErrImageNeverPull"
	InvalidImageName  = "InvalidImageName"
	ImageInspectError = "ImageInspectError"

	// These two begin the errors of a runtime that tells them from others, such as
	// CRI-O.
	RegistryUnavailable       = "RegistryUnavailable"
	SignatureValidationFailed = "SignatureValidationFailed"
)

// IsPullFailure reports whether a pull that failed is tried again by itself.
func IsPullFailure(reason string) bool {
	switch reason {
	case ErrImagePull, ImagePullBackOff, RegistryUnavailable, SignatureValidationFailed:
		return true
	}
	return false
}

// maxReason is how much is kept of why a pull failed, in bytes. It quotes the answers of
// registries, once for each login, until the pod is gone.
const maxReason = 4 << 10

// failedPull returns the Error for what the runtime said of a pull.
func failedPull(image string, err error) *Error {
	text := err.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	for reason, what := range map[string]string{RegistryUnavailable: "the registry is unavailable", SignatureValidationFailed: "the signature validation failed"} {
		if rest, ok := strings.CutPrefix(text, reason); ok {
			return &Error{reason, fmt.Sprintf("image pull failed for %s because %s%s", image, what, rest)}
		}
	}
	return &Error{ErrImagePull, text}
}

// Event records an event, with upstream's reasons and messages.
type Event func(eventType, reason, message string)

// puller ensures that images are on the node. Its methods may be called from
// any goroutine.
type puller struct {
	Images internalapi.ImageManagerService
	// Initial and Max bound the wait between failed pulls.
	Initial, Max time.Duration
	// records decide who may use an image on the node. Nil means everyone.
	Records *records
	// Providers have the node's own logins. Nil has none.
	Providers *Providers
	// Limit bounds the rate of requests to registries. Nil means no bound.
	Limit flowcontrol.RateLimiter

	mu       sync.Mutex // guards what follows
	failures map[string]failure
	used     map[string]use
	running  map[*context.CancelCauseFunc]bool // end the pulls that are in progress

	turns   *turns // nil: no bound
	metrics *metrics
}

type failure struct {
	reason, message string
	until           time.Time
	delay           time.Duration
}

// newPuller returns a puller that pulls at most parallel images at a time. 0
// means no bound.
func newPuller(images internalapi.ImageManagerService, parallel int) *puller {
	p := &puller{Images: images, Initial: 10 * time.Second, Max: 5 * time.Minute, failures: map[string]failure{}, used: map[string]use{}, running: map[*context.CancelCauseFunc]bool{}, metrics: newMetrics()}
	if parallel > 0 {
		p.turns = newTurns(parallel)
	}
	return p
}

// normalize appends the tag that a reference without one stands for. It
// returns an error for a name that cannot be a reference.
func normalize(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("Failed to apply default image tag %q: couldn't parse image name %q: %w", name, name, err) //nolint:staticcheck // upstream's wording
	}
	if reference.IsNameOnly(named) {
		return name + ":latest", nil
	}
	return name, nil
}

// Ensure returns the image of the container, after pulling it if the pull policy
// requires it. Failed pulls back off by image and backoffKey.
func (p *puller) Ensure(ctx context.Context, c *v1.Container, backoffKey string, logins Logins, sandbox *runtimeapi.PodSandboxConfig, event Event) (*runtimeapi.Image, error) {
	name, err := normalize(c.Image)
	if err != nil {
		event(v1.EventTypeWarning, "InspectFailed", err.Error())
		return nil, &Error{InvalidImageName, err.Error()}
	}
	policy := c.ImagePullPolicy
	if policy == "" {
		policy = v1.PullIfNotPresent
		if strings.HasSuffix(name, ":latest") {
			policy = v1.PullAlways
		}
	}
	here, pulls := unknown, unknown
	defer func() { p.metrics.requests.WithLabelValues(here, strings.ToLower(string(policy)), pulls).Inc() }()
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: c.Image, Annotations: sandbox.GetAnnotations()}
	status, err := p.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", name, err)
		event(v1.EventTypeWarning, "InspectFailed", message)
		return nil, &Error{ImageInspectError, message}
	}
	present := status.GetImage()
	if policy != v1.PullAlways { // upstream does not look for the image then
		here = strconv.FormatBool(present != nil)
	}
	if present != nil || policy != v1.PullNever {
		pulls = "true"
	}
	if present != nil && policy != v1.PullAlways && p.allows(ctx, name, present.GetId(), logins) {
		pulls = "false"
		p.touch(present.GetId())
		event(v1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.Image))
		return present, nil
	}
	if policy == v1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		if present != nil {
			message = fmt.Sprintf("Container image %q is present with pull policy of Never but the pod does not have the credentials that it was pulled with", c.Image)
		}
		event(v1.EventTypeWarning, "ErrImageNeverPull", message)
		return nil, &Error{ErrImageNeverPull, message}
	}
	key := backoffKey + "_" + name
	if f, wait := p.backingOff(key); wait {
		event(v1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
		return nil, &Error{ImagePullBackOff, fmt.Sprintf("Back-off pulling image %q: %s: %s", c.Image, f.reason, f.message)}
	}
	return p.pull(ctx, c, spec, key, logins, sandbox, event)
}

// allows reports whether the pod may use an image that is on the node.
func (p *puller) allows(ctx context.Context, name, id string, logins Logins) bool {
	if p.Records == nil {
		return true
	}
	var secrets []kubeletconfig.ImagePullSecret
	for _, c := range logins.secrets(name) {
		secrets = append(secrets, c.Secret)
	}
	accounts := func() (all []kubeletconfig.ImagePullServiceAccount) {
		if p.Providers.asksForAccounts(name) {
			for _, c := range p.Providers.Credentials(ctx, name, logins.Account) {
				all = append(all, c.Account)
			}
		}
		return all
	}
	allowed, err := p.Records.Allows(name, id, secrets, accounts)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reading the records of pulled images failed", "image", name)
	}
	return allowed
}

func (p *puller) pull(ctx context.Context, c *v1.Container, spec *runtimeapi.ImageSpec, key string, logins Logins, sandbox *runtimeapi.PodSandboxConfig, event Event) (*runtimeapi.Image, error) {
	event(v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	asked := time.Now()
	if p.turns != nil {
		end, err := p.turns.take(ctx, sandbox.GetMetadata().GetNamespace())
		if err != nil {
			return nil, err
		}
		defer end()
	}
	began := time.Now()
	auths := slices.Concat(logins.secrets(spec.GetImage()), p.Providers.Credentials(ctx, spec.GetImage(), logins.Account))
	if len(auths) == 0 {
		auths = []Credential{{}}
	}
	pulling, done := p.begin(ctx)
	defer done()
	image, failed := p.recorded(pulling, spec, auths, sandbox)
	if failed != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ended := context.Cause(pulling); ended != nil {
			failed = ended
		}
		why := failedPull(c.Image, failed)
		p.failed(key, why)
		event(v1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, failed))
		return nil, why
	}
	p.mu.Lock()
	delete(p.failures, key)
	p.mu.Unlock()
	p.touch(image.GetId())
	p.metrics.pulls.WithLabelValues(sizeRange(image.GetSize())).Observe(time.Since(asked).Seconds())
	event(v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		c.Image, time.Since(began).Truncate(time.Millisecond), time.Since(asked).Truncate(time.Millisecond), image.GetSize()))
	return image, nil
}

// errDiskShort is why a pull ends before the registry has sent everything.
var errDiskShort = errors.New("the node has ended the pull: its disk is short")

// begin returns the context of a pull, which EndPulls ends as well. The caller calls done
// after it.
func (p *puller) begin(ctx context.Context) (pulling context.Context, done func()) {
	pulling, end := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[&end] = true
	return pulling, func() {
		p.mu.Lock()
		delete(p.running, &end)
		p.mu.Unlock()
		end(nil)
	}
}

// EndPulls ends the pulls that are in progress, and returns how many there are: what they
// have fetched is no pod's yet, and a registry may send without end. They are tried again
// as any pull that has failed.
func (p *puller) EndPulls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := len(p.running)
	for end := range p.running {
		(*end)(errDiskShort)
	}
	clear(p.running)
	return ended
}

// recorded pulls an image and records whose credentials were used.
func (p *puller) recorded(ctx context.Context, spec *runtimeapi.ImageSpec, auths []Credential, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	name := spec.GetImage()
	if p.Records != nil {
		if err := p.Records.Begin(name); err != nil {
			return nil, err
		}
	}
	with, err := p.try(ctx, spec, auths, sandbox)
	if err != nil {
		if p.Records != nil {
			if endErr := p.Records.End(name); endErr != nil {
				klog.FromContext(ctx).Error(endErr, "Removing the record of a failed pull failed", "image", name)
			}
		}
		return nil, err
	}
	status, err := p.Images.ImageStatus(ctx, spec, false)
	if err == nil && status.GetImage() == nil {
		err = errors.New("the runtime does not list it")
	}
	if err != nil {
		return nil, fmt.Errorf("image %q was pulled but cannot be inspected: %w", name, err)
	}
	if p.Records != nil {
		if err := p.Records.Pulled(name, status.GetImage(), with); err != nil {
			klog.FromContext(ctx).Error(err, "Writing the record of a pulled image failed, other pods will have to pull it again", "image", name)
		}
	}
	return status.GetImage(), nil
}

// try pulls with one credential after another until one succeeds.
func (p *puller) try(ctx context.Context, spec *runtimeapi.ImageSpec, auths []Credential, sandbox *runtimeapi.PodSandboxConfig) (with Credential, err error) {
	var failures []error
	for _, with := range auths {
		if p.Limit != nil && !p.Limit.TryAccept() {
			return with, errors.New("pull QPS exceeded")
		}
		_, err := p.Images.PullImage(ctx, spec, with.Auth, sandbox)
		if err == nil {
			return with, nil
		}
		failures = append(failures, err)
	}
	return Credential{}, utilerrors.NewAggregate(failures)
}

// Retry returns when a failed pull may be tried again, if one is waiting.
func (p *puller) Retry(c *v1.Container, backoffKey string) (time.Time, bool) {
	name, err := normalize(c.Image)
	if err != nil {
		return time.Time{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.failures[backoffKey+"_"+name]
	return f.until, ok
}

func (p *puller) backingOff(key string) (failure, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.failures[key]
	return f, ok && time.Now().Before(f.until)
}

func (p *puller) failed(key string, why *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.failures[key]
	f.delay = min(max(2*f.delay, p.Initial), p.Max)
	f.reason, f.message, f.until = why.Reason, why.Message, time.Now().Add(f.delay)
	p.failures[key] = f
}

// Forget drops the back-offs of a pod.
func (p *puller) Forget(backoffKey string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.failures {
		if strings.HasPrefix(key, backoffKey+"_") {
			delete(p.failures, key)
		}
	}
}

// touch records that a pod has asked for an image.
func (p *puller) touch(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.used[id] = use{now, now}
}
