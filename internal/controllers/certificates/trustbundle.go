package certificates

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// servingSigner signs the serving certificates of API servers. The file
// --root-ca-file has its authority.
const servingSigner = "kubernetes.io/kube-apiserver-serving"

// Publishing describes the controller that publishes the authority of API servers
// as a ClusterTrustBundle (KEP-3257).
func Publishing() controller.Descriptor {
	const name = "kube-apiserver-serving-clustertrustbundle-publisher"
	return controller.Descriptor{
		Name:           name + "-controller",
		ServiceAccount: name,
		EventSource:    name,
		New:            newPublishing,
	}
}

type publishing struct {
	kube    kubernetes.Interface
	bundles certificateslisters.ClusterTrustBundleLister
	bundle  string
	queue   *controller.Queue[string]
}

// newPublishing builds the controller. It does nothing without an authority, or
// where ClusterTrustBundles are not served.
func newPublishing(env *controller.Env) (controller.Controller, error) {
	bundle := env.RootCA
	if len(bundle) == 0 && env.Client.Config != nil {
		bundle = env.Client.Config.CAData
	}
	informer := env.Client.Informers.Certificates().V1().ClusterTrustBundles()
	c := &publishing{kube: env.Client.Kubernetes, bundle: string(bundle)}
	c.queue = controller.NewQueue(env.Queues, "ca_trust_bundle_publisher", c.sync)
	return controller.Func(func(ctx context.Context) error {
		if len(bundle) == 0 {
			klog.FromContext(ctx).Info("No certificate authority to publish; set --root-ca-file")
			<-ctx.Done()
			return nil
		}
		if served, err := env.WaitUnlessServed(ctx, certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles")); !served {
			return err
		}
		c.bundles = informer.Lister() // not before: it starts the informer
		c.queue.Add(servingSigner)
		return controller.Serve(ctx, []controller.Source{controller.On(informer.Informer(), c.changed)}, c.queue.Workers(1))
	}), nil
}

func (c *publishing) changed(old, bundle *certificatesv1.ClusterTrustBundle) {
	if old != nil && old.Spec.SignerName == servingSigner || bundle != nil && bundle.Spec.SignerName == servingSigner {
		c.queue.Add(servingSigner)
	}
}

// sync keeps one bundle of the signer: it creates the current one before it
// deletes others, so that pods always find an authority.
func (c *publishing) sync(ctx context.Context, signer string) error {
	want := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: bundleName(signer, c.bundle)},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: c.bundle},
	}
	bundles := c.kube.CertificatesV1().ClusterTrustBundles()
	have, err := c.bundles.Get(want.Name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = bundles.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case err == nil && have.Spec.TrustBundle != c.bundle:
		next := have.DeepCopy()
		next.Spec.TrustBundle = c.bundle
		_, err = bundles.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publishing the trust bundle %s: %w", want.Name, err)
	}
	all, err := c.bundles.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		if b.Spec.SignerName != signer || b.Name == want.Name {
			continue
		}
		err := bundles.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}})
		if err = controller.IgnoreNotFoundOrConflict(err); err != nil {
			errs = append(errs, fmt.Errorf("deleting the trust bundle %s: %w", cache.MetaObjectToName(b), err))
		}
	}
	return errors.Join(errs...)
}

// bundleName returns the name of a signer's bundle: the signer's name, as the API
// demands, and a hash of the content, so that nobody relies on the name.
func bundleName(signer, bundle string) string {
	hash := sha256.Sum256([]byte(bundle))
	return strings.ReplaceAll(signer, "/", ":") + fmt.Sprintf(":%x", hash[:12])
}
