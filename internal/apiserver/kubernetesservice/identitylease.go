package kubernetesservice

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/status"
)

const (
	identityLabel    = "apiserver.kubernetes.io/identity"
	identityOf       = "kube-apiserver"
	identitySeconds  = 3600
	identityInterval = time.Hour // between searches for servers that are gone
)

// identity is the Lease in kube-system that identifies an API server (KEP-1965).
// A server that restarts on its machine takes it over.
type identity struct {
	client kubernetes.Interface
	host   string
	// holder identifies this process of the server.
	holder string
	// swept is when expired leases were last deleted.
	swept time.Time
	// renewals holds when the leases had been renewed then, by their names.
	renewals map[string]time.Time
}

// LeaseName returns the name of the Lease of the API server on a host: apiserver-
func LeaseName(host string) string {
	sum := sha256.Sum256([]byte(host))
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// renew writes the Lease and, once per identityInterval, deletes expired ones.
func (i *identity) renew(ctx context.Context, now time.Time) error {
	leases := i.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	seconds, at := int32(identitySeconds), metav1.NewMicroTime(now)
	own := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: LeaseName(i.host), Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{identityLabel: identityOf, corev1.LabelHostname: i.host},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &i.holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
	current, err := leases.Get(ctx, own.Name, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, own, metav1.CreateOptions{})
	case err == nil:
		current = current.DeepCopy()
		current.Spec = own.Spec
		metav1.SetMetaDataLabel(&current.ObjectMeta, identityLabel, identityOf)
		metav1.SetMetaDataLabel(&current.ObjectMeta, corev1.LabelHostname, i.host)
		_, err = leases.Update(ctx, current, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the identity lease %s: %w", own.Name, err)
	}
	if now.Sub(i.swept) < identityInterval {
		return nil
	}
	i.swept = now
	return i.sweep(ctx, now)
}

// sweep deletes Leases that have expired. One that was renewed since the last sweep, an hour ago, is
// of a server that is there, though its clock may be behind or that of this machine was set forward.
func (i *identity) sweep(ctx context.Context, now time.Time) error {
	leases := i.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	all, err := leases.List(ctx, metav1.ListOptions{LabelSelector: identityLabel + "=" + identityOf, ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list the API servers' identity leases: %w", err)
	}
	before := i.renewals
	i.renewals = map[string]time.Time{}
	var failed error
	for _, l := range all.Items {
		renewed := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time
		i.renewals[l.Name] = renewed
		if last, known := before[l.Name]; before != nil && (!known || !last.Equal(renewed)) {
			continue
		}
		if l.Spec.LeaseDurationSeconds != nil && now.Before(renewed.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second)) {
			continue
		}
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}}
		failed = errors.Join(failed, status.IgnoreRace(leases.Delete(ctx, l.Name, only)))
	}
	return failed
}
