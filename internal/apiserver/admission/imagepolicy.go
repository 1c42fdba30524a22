package admission

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/apiserver/webhooks"
)

const (
	// imagePolicyAnnotations is in the keys of the annotations of a pod that the
	// webhook sees.
	imagePolicyAnnotations = ".image-policy.k8s.io/"
	// imagePolicyAudit is the prefix of the plugin's annotations of audit events.
	imagePolicyAudit = "imagepolicywebhook.image-policy.k8s.io/"
	// failedOpen marks pods, and audit events, that were allowed because the
	// webhook failed.
	failedOpen           = "failed-open"
	failedOpenAnnotation = "alpha.image-policy.k8s.io/" + failedOpen
)

// cachedReviews is how many answers of the webhook are kept, and largestReview the
// largest of them, in bytes.
const cachedReviews, largestReview = 1024, 64 << 10

// imagePolicy is the configuration of ImagePolicyWebhook.
type imagePolicy struct {
	server            *webhook.GenericWebhook
	allowTTL, denyTTL time.Duration // how long answers are kept
	defaultAllow      bool          // whether pods are allowed while the webhook fails
}

// imagePolicyWebhook asks a webhook whether the images of a pod may run.
type imagePolicyWebhook struct {
	onWrite
	*imagePolicy
	answers *cache.LRUExpireCache // statuses, by the hash of what was asked
}

func newImagePolicyWebhook(c *Config) admission.Interface {
	return imagePolicyWebhook{imagePolicy: c.Configured["ImagePolicyWebhook"].imagePolicy, answers: cache.NewLRUExpireCacheWithClock(cachedReviews, c.Clock)}
}

// readImagePolicy reads and validates the configuration of the plugin, which has no
// version, and the kubeconfig of the webhook that it names.
func readImagePolicy(raw []byte) (*imagePolicy, error) {
	if raw == nil {
		return nil, errors.New("no config specified")
	}
	var file struct {
		ImagePolicy struct {
			KubeConfigFile string `json:"kubeConfigFile"`
			AllowTTL       int64  `json:"allowTTL"`     // in seconds
			DenyTTL        int64  `json:"denyTTL"`      // in seconds
			RetryBackoff   int64  `json:"retryBackoff"` // in milliseconds
			DefaultAllow   bool   `json:"defaultAllow"`
		} `json:"imagePolicy"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	read := file.ImagePolicy
	if read.KubeConfigFile == "" {
		return nil, errors.New("imagePolicy.kubeConfigFile: Required value")
	}
	const least, most = time.Second, 30 * time.Minute
	p := &imagePolicy{defaultAllow: read.DefaultAllow}
	backoff, err := durationOf(read.RetryBackoff, time.Millisecond, 1, 5*time.Minute, 500*time.Millisecond)
	if err == nil {
		p.allowTTL, err = durationOf(read.AllowTTL, time.Second, least, most, 5*time.Minute)
	}
	if err == nil {
		p.denyTTL, err = durationOf(read.DenyTTL, time.Second, least, most, 30*time.Second)
	}
	if err != nil {
		return nil, err
	}
	config, err := webhook.LoadKubeconfig(read.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	known, version := runtime.NewScheme(), imagepolicyv1alpha1.SchemeGroupVersion
	if err := imagepolicyv1alpha1.AddToScheme(known); err != nil {
		return nil, err
	}
	p.server, err = webhook.NewGenericWebhook(known, serializer.NewCodecFactory(known), webhooks.Bound(config),
		[]schema.GroupVersion{version}, webhook.DefaultRetryBackoffWithInitialDelay(backoff))
	return p, err
}

// durationOf returns a configured number of units. 0 stands for the default, and -1
// for no time. Others must be above least, and at most most.
func durationOf(n int64, unit, least, most, usual time.Duration) (time.Duration, error) {
	switch n {
	case -1:
		return 0, nil
	case 0:
		return usual, nil
	}
	d := time.Duration(n) * unit
	if n < 0 || n > int64(most/unit) || d <= least {
		return 0, fmt.Errorf("valid value is between %v and %v, got %v", least, most, d)
	}
	return d, nil
}

// Validate asks about the images of a pod's containers, and of its ephemeral
// containers when those change.
func (p imagePolicyWebhook) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	ephemeral := is(a, "", "pods", "ephemeralcontainers")
	if !ephemeral && !is(a, "", "pods", "") {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest("Resource was marked with kind Pod but was unable to be converted")
	}
	spec := imagepolicyv1alpha1.ImageReviewSpec{Containers: imagesOf(pod, ephemeral), Namespace: a.GetNamespace(), Annotations: map[string]string{}}
	for key, value := range pod.Annotations {
		if strings.Contains(key, imagePolicyAnnotations) {
			spec.Annotations[key] = value
		}
	}
	status, err := p.review(ctx, spec)
	if err != nil {
		return p.unanswered(ctx, a, pod, err)
	}
	for key, value := range status.AuditAnnotations {
		annotateAudit(ctx, a, key, value)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return refused(a, "image policy webhook backend denied one or more images: %s", status.Reason)
	}
	return refused(a, "one or more images rejected by webhook backend")
}

// unanswered refuses a write that the webhook did not answer for, or marks it and
// its pod if it is allowed then.
func (p imagePolicyWebhook) unanswered(ctx context.Context, a admission.Attributes, pod *corev1.Pod, err error) error {
	log := klog.FromContext(ctx).V(2)
	log.Info("Error contacting the image policy webhook", "err", err, "allowed", p.defaultAllow)
	if !p.defaultAllow {
		return admission.NewForbidden(a, err)
	}
	annotateAudit(ctx, a, failedOpen, "true")
	annotations := maps.Clone(pod.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[failedOpenAnnotation] = "true"
	pod.Annotations = annotations
	return nil
}

func annotateAudit(ctx context.Context, a admission.Attributes, key, value string) {
	if err := a.AddAnnotation(imagePolicyAudit+key, value); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot annotate the audit event", "annotation", imagePolicyAudit+key)
	}
}

func imagesOf(pod *corev1.Pod, ephemeral bool) []imagepolicyv1alpha1.ImageReviewContainerSpec {
	var images []imagepolicyv1alpha1.ImageReviewContainerSpec
	add := func(image string) {
		images = append(images, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if ephemeral {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
		return images
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Image)
	}
	for i := range pod.Spec.InitContainers {
		add(pod.Spec.InitContainers[i].Image)
	}
	return images
}

// review returns the webhook's answer, or the one that it gave to the same question
// before.
func (p imagePolicyWebhook) review(ctx context.Context, spec imagepolicyv1alpha1.ImageReviewSpec) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	var none imagepolicyv1alpha1.ImageReviewStatus
	asked, err := json.Marshal(spec)
	if err != nil {
		return none, err
	}
	key := sha256.Sum256(asked)
	if known, ok := p.answers.Get(key); ok {
		return known.(imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	review := &imagepolicyv1alpha1.ImageReview{Spec: spec}
	result := p.server.WithExponentialBackoff(ctx, func() rest.Result { return p.server.RestClient.Post().Body(review).Do(ctx) })
	if err := result.Error(); err != nil {
		return none, err
	}
	code := 0
	if result.StatusCode(&code); code < 200 || code >= 300 {
		return none, fmt.Errorf("Error contacting webhook: %d", code)
	}
	if err := result.Into(review); err != nil {
		return none, err
	}
	ttl := p.denyTTL
	if review.Status.Allowed {
		ttl = p.allowTTL
	}
	if body, err := result.Raw(); err == nil && len(body) <= largestReview {
		p.answers.Add(key, review.Status, ttl)
	}
	return review.Status, nil
}
