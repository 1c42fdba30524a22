package legacytokencleaner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

const (
	day    = 24 * time.Hour
	period = 10 * day
)

// fate is what became of the token "web/t" of the account "web/a".
func fate(t *testing.T, c *controllertest.Cluster) string {
	t.Helper()
	synctest.Wait()
	s, err := c.Fake.CoreV1().Secrets("web").Get(t.Context(), "t", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "deleted"
	case err != nil:
		t.Fatal(err)
	case s.Labels[invalidSince] != "":
		return "invalid since " + s.Labels[invalidSince]
	}
	return "valid"
}

type cluster struct {
	secret   *v1.Secret
	account  *v1.ServiceAccount
	tracking *v1.ConfigMap
	pod      *v1.Pod
}

// unused is a token that was generated long ago and never used since.
func unused() *cluster {
	return &cluster{
		secret: &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: "t", CreationTimestamp: metav1.NewTime(time.Now().Add(-100 * day)), Labels: map[string]string{},
				Annotations: map[string]string{v1.ServiceAccountNameKey: "a", v1.ServiceAccountUIDKey: "uid-a"},
			},
			Type: v1.SecretTypeServiceAccountToken,
		},
		account: &v1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a", UID: "uid-a"}, Secrets: []v1.ObjectReference{{Name: "t"}},
		},
		tracking: &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: tracking}, Data: map[string]string{"since": date(-50 * day)},
		},
		pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}},
	}
}

func (c *cluster) run(t *testing.T) *controllertest.Cluster {
	fake := controllertest.New(t, c.secret, c.account, c.tracking, c.pod)
	fake.Run(Descriptor(), "--legacy-service-account-token-clean-up-period="+period.String())
	return fake
}

func date(ago time.Duration) string { return time.Now().UTC().Add(ago).Format(time.DateOnly) }

func TestWhichTokensAreTakenAway(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*cluster)
		want   func() string
	}{
		{"unused", func(*cluster) {}, invalid},
		{"used long ago", func(c *cluster) { c.secret.Labels[lastUsed] = date(-11 * day) }, invalid},
		{"used within the period", func(c *cluster) { c.secret.Labels[lastUsed] = date(-10 * day) }, valid},
		{"new", func(c *cluster) { c.secret.CreationTimestamp = metav1.NewTime(time.Now().Add(-9 * day)) }, valid},
		{"of another type", func(c *cluster) { c.secret.Type = v1.SecretTypeOpaque }, valid},
		{"asked for by somebody", func(c *cluster) { c.account.Secrets = nil }, valid},
		{"of an account that is gone", func(c *cluster) { c.account.UID = "another" }, valid},
		{"uses noted since yesterday", func(c *cluster) { c.tracking.Data["since"] = date(-day) }, valid},
		{"uses noted since nobody knows when", func(c *cluster) { c.tracking.Data["since"] = "ever" }, valid},
		{"uses not noted", func(c *cluster) { c.tracking.Name = "other" }, valid},
		{"mounted", func(c *cluster) {
			c.pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "t"}}}}
		}, valid},
		{"mounted with others", func(c *cluster) {
			projected := &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "t"}}}}}
			c.pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: projected}}}
		}, valid},
		{"in a variable", func(c *cluster) {
			from := &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "t"}}}
			c.pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "TOKEN", ValueFrom: from}}
		}, valid},
		{"in the variables", func(c *cluster) {
			from := &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "t"}}
			c.pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{SecretRef: from}}
		}, valid},
		{"invalid for a while", func(c *cluster) { c.secret.Labels[invalidSince] = date(-10 * day) }, func() string { return "invalid since " + date(-10*day) }},
		{"invalid for longer than the period", func(c *cluster) { c.secret.Labels[invalidSince] = date(-11 * day) }, func() string { return "deleted" }},
		{"invalid since nobody knows when", func(c *cluster) { c.secret.Labels[invalidSince] = "ever" }, invalid},
		{"invalid but used", func(c *cluster) {
			c.secret.Labels[invalidSince], c.secret.Labels[lastUsed] = date(-11*day), date(-day)
		}, func() string { return "invalid since " + date(-11*day) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				with := unused()
				c.change(with)
				if got, want := fate(t, with.run(t)), c.want(); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		})
	}
}

func valid() string   { return "valid" }
func invalid() string { return "invalid since " + date(0) }

func TestAnInvalidTokenGoesAfterAnotherPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := unused().run(t)
		since := fate(t, c)
		time.Sleep(period)
		if got := fate(t, c); got != since || since != fmt.Sprint("invalid since ", date(-period)) {
			t.Errorf("%s, then %s", since, got)
		}
		time.Sleep(2 * day)
		if got := fate(t, c); got != "deleted" {
			t.Error(got)
		}
	})
}
