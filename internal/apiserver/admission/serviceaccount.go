package admission

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	defaultServiceAccount = "default"
	tokenVolumePrefix     = "kube-api-access-"
	tokenMountPath        = "/var/run/secrets/kubernetes.io/serviceaccount"
	rootCAConfigMap       = "kube-root-ca.crt"
	// tokenExpirationSeconds requests a token that is renewed every hour.
	tokenExpirationSeconds = 60*60 + 7
	// A controller creates the default service account of a new namespace. A
	// pod that is created before waits for this long.
	defaultAccountTimeout = time.Second
	defaultAccountPoll    = 10 * time.Millisecond
)

// serviceAccount sets the service account of every pod, its image pull secrets
// and a volume with a token.
type serviceAccount struct {
	onWrite
	accounts fresh[*corev1.ServiceAccount]
}

func newServiceAccount(c *Config) admission.Interface {
	return serviceAccount{accounts: freshOf[*corev1.ServiceAccount](c, objects.ServiceAccounts)}
}

func (p serviceAccount) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") || a.GetOperation() != admission.Create {
		return nil
	}
	if podquery.IsMirror(pod) {
		return p.Validate(ctx, a, o)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultServiceAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := p.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return refused(a, "error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err)
	}
	if automount(account, pod) {
		mountToken(pod, rand.String)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append([]corev1.LocalObjectReference(nil), account.ImagePullSecrets...)
	}
	return nil
}

// Validate refuses tokens in mirror pods, and secrets that the service account
// does not list if it restricts them.
func (p serviceAccount) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	switch {
	case !ok:
		return nil
	case a.GetOperation() == admission.Update && is(a, "", "pods", "ephemeralcontainers"):
		return p.validateSecrets(ctx, a, pod, mountable.checkEphemeral)
	case a.GetOperation() != admission.Create || !is(a, "", "pods", ""):
		return nil
	}
	if !podquery.IsMirror(pod) {
		return p.validateSecrets(ctx, a, pod, mountable.checkPod)
	}
	return validateMirror(a, pod)
}

// validateSecrets applies check to the pod if its service account restricts
// secrets.
func (p serviceAccount) validateSecrets(ctx context.Context, a admission.Attributes, pod *corev1.Pod, check func(mountable, *corev1.PodSpec) error) error {
	account, err := p.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return refused(a, "error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err)
	}
	if !restrictsSecrets(account) {
		return nil
	}
	if err := check(mountableOf(account), &pod.Spec); err != nil {
		return refused(a, "%w", err)
	}
	return nil
}

func validateMirror(a admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return refused(a, "a mirror pod may not reference service accounts")
	}
	if refs := podquery.ReferencesOf(&pod.Spec); refs.Secrets {
		return refused(a, "a mirror pod may not reference secrets")
	} else if refs.Tokens {
		return refused(a, "a mirror pod may not use ServiceAccountToken volume projections")
	}
	return nil
}

func (p serviceAccount) find(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, ok := p.accounts.find(ctx, namespace, name)
	if ok {
		return account, nil
	}
	if name == defaultServiceAccount {
		for range defaultAccountTimeout / defaultAccountPoll {
			if !supervise.Pause(ctx, defaultAccountPoll) {
				return nil, ctx.Err()
			}
			if account, ok = p.accounts.Get(namespace, name); ok {
				return account, nil
			}
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
}

func automount(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

// mountToken mounts the token volume into every container that mounts nothing
// at its path. suffix returns a random suffix of the volume's name.
func mountToken(pod *corev1.Pod, suffix func(n int) string) {
	name, exists := "", false
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolumePrefix) {
			name, exists = v.Name, true
			break
		}
	}
	if !exists {
		name = tokenVolumePrefix + suffix(5)
	}
	mounted := false
	for c := range podquery.Containers(&pod.Spec) {
		if !mountsAt(c, tokenMountPath) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
			mounted = true
		}
	}
	if mounted && !exists {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}})
	}
}

func mountsAt(c *corev1.Container, path string) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath == path {
			return true
		}
	}
	return false
}

func tokenVolume() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](tokenExpirationSeconds)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}
}
