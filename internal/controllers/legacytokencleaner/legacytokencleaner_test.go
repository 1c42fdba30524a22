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
	"github.com/coracle-io/coracle/internal/legacytoken"
)

const (
	day    = 24 * time.Hour
	period = 10 * day
)

// state returns the state of the token "web/t" of the account "web/a".
func state(t *testing.T, c *controllertest.Cluster) string {
	t.Helper()
	synctest.Wait()
	s, err := c.Fake.CoreV1().Secrets("web").Get(t.Context(), "t", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "deleted"
	case err != nil:
		t.Fatal(err)
	case s.Labels[legacytoken.InvalidSince] != "":
		return "invalid since " + s.Labels[legacytoken.InvalidSince]
	}
	return "valid"
}

type cluster struct {
	secret   *v1.Secret
	account  *v1.ServiceAccount
	tracking *v1.ConfigMap
	pod      *v1.Pod
}

// unused returns a cluster with a token that was generated long ago and never used.
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

func TestCleanup(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*cluster)
		want   func() string
	}{
		{"unused", func(*cluster) {}, invalid},
		{"used long ago", func(c *cluster) { c.secret.Labels[legacytoken.LastUsed] = date(-11 * day) }, invalid},
		{"used within the period", func(c *cluster) { c.secret.Labels[legacytoken.LastUsed] = date(-10 * day) }, valid},
		{"new", func(c *cluster) { c.secret.CreationTimestamp = metav1.NewTime(time.Now().Add(-9 * day)) }, valid},
		{"of another type", func(c *cluster) { c.secret.Type = v1.SecretTypeOpaque }, valid},
		{"requested by a user", func(c *cluster) { c.account.Secrets = nil }, valid},
		{"of a deleted account", func(c *cluster) { c.account.UID = "another" }, valid},
		{"tracked since yesterday", func(c *cluster) { c.tracking.Data["since"] = date(-day) }, valid},
		{"invalid start of tracking", func(c *cluster) { c.tracking.Data["since"] = "ever" }, valid},
		{"not tracked", func(c *cluster) { c.tracking.Name = "other" }, valid},
		{"mounted", func(c *cluster) {
			c.pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "t"}}}}
		}, valid},
		{"in a projected volume", func(c *cluster) {
			projected := &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "t"}}}}}
			c.pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: projected}}}
		}, valid},
		{"in env", func(c *cluster) {
			from := &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "t"}}}
			c.pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "TOKEN", ValueFrom: from}}
		}, valid},
		{"in envFrom", func(c *cluster) {
			from := &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "t"}}
			c.pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{SecretRef: from}}
		}, valid},
		{"invalid for less than the period", func(c *cluster) { c.secret.Labels[legacytoken.InvalidSince] = date(-10 * day) }, func() string { return "invalid since " + date(-10*day) }},
		{"invalid for longer than the period", func(c *cluster) { c.secret.Labels[legacytoken.InvalidSince] = date(-11 * day) }, func() string { return "deleted" }},
		{"invalid since a malformed date", func(c *cluster) { c.secret.Labels[legacytoken.InvalidSince] = "ever" }, invalid},
		{"invalid but used", func(c *cluster) {
			c.secret.Labels[legacytoken.InvalidSince], c.secret.Labels[legacytoken.LastUsed] = date(-11*day), date(-day)
		}, func() string { return "invalid since " + date(-11*day) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				with := unused()
				c.change(with)
				if got, want := state(t, with.run(t)), c.want(); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		})
	}
}

func valid() string   { return "valid" }
func invalid() string { return "invalid since " + date(0) }

func TestInvalidTokenIsDeletedAfterAnotherPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := unused().run(t)
		since := state(t, c)
		time.Sleep(period)
		if got := state(t, c); got != since || since != fmt.Sprint("invalid since ", date(-period)) {
			t.Errorf("%s, then %s", since, got)
		}
		time.Sleep(2 * day)
		if got := state(t, c); got != "deleted" {
			t.Error(got)
		}
	})
}
