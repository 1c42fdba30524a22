// Package certificates contains the controllers of CertificateSigningRequests.
// One approves client certificates of kubelets, and serving certificates where that
// is allowed; one signs approved requests with the cluster's authority, and one
// deletes old requests.
//
//	created ──approve (or kubectl)──▶ Approved ──sign──▶ certificate ──clean──▶ gone
package certificates

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	definition "github.com/coracle-io/coracle/internal/resource/certificates"
)

// Approving describes the controller that approves requests of kubelets.
func Approving() controller.Descriptor {
	return controller.Descriptor{
		Name:           "certificatesigningrequest-approving-controller",
		Aliases:        []string{"csrapproving"},
		ServiceAccount: "certificate-controller",
		EventSource:    "certificate-controller",
		New:            newApproving,
	}
}

// newApproving builds the approving controller.
func newApproving(env *controller.Env) (controller.Controller, error) {
	return newRequestController(env, "certificate_approving", func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
		return approve(ctx, env, csr)
	}), nil
}

// newRequestController returns a controller that calls sync for each request that
// is new or has changed. sync must not change the request.
func newRequestController(env *controller.Env, name string, sync func(context.Context, *certificatesv1.CertificateSigningRequest) error) controller.Controller {
	requests := env.Client.Informers.Certificates().V1().CertificateSigningRequests()
	queue := controller.NewQueue(env.Queues, name, controller.Existing[string](requests.Informer(), sync))
	return controller.Func(func(ctx context.Context) error {
		return controller.Serve(ctx, []controller.Source{
			controller.On(requests.Informer(), func(_, csr *certificatesv1.CertificateSigningRequest) {
				if csr != nil {
					queue.Add(csr.Name)
				}
			}),
		}, queue.Workers(2))
	})
}

// permission is a subresource that the requestor must be allowed to create for the
// request to be approved, and the message of the approval.
type permission struct{ subresource, message string }

// selfNodeServer is the subresource of requests of a node for its own serving
// certificate. Upstream knows none, and approves none of them.
const selfNodeServer = "selfnodeserver"

// permissions returns the permissions, one of which is needed for the approval of a
// request, the weakest first. It returns none for requests that are not for a
// kubelet's client certificate, or for its own serving certificate.
func permissions(csr *certificatesv1.CertificateSigningRequest) []permission {
	r, err := definition.ParseRequest(csr.Spec.Request)
	if err != nil {
		return nil
	}
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && kubeletServing(r, csr.Spec.Usages) == nil && csr.Spec.Username == r.Subject.CommonName {
		return []permission{{selfNodeServer, "Auto approving self kubelet server certificate after SubjectAccessReview."}}
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || kubeletClient(r, csr.Spec.Usages) != nil {
		return nil
	}
	other := permission{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."}
	if csr.Spec.Username != r.Subject.CommonName {
		return []permission{other}
	}
	return []permission{{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."}, other}
}

func approve(ctx context.Context, env *controller.Env, csr *certificatesv1.CertificateSigningRequest) error {
	if len(csr.Status.Certificate) > 0 || has(csr, certificatesv1.CertificateApproved) || has(csr, certificatesv1.CertificateDenied) {
		return nil
	}
	for _, p := range permissions(csr) {
		allowed, err := mayCreate(ctx, env, csr, p.subresource)
		if err != nil {
			return err
		}
		if !allowed {
			continue
		}
		if p.subresource == selfNodeServer {
			refused, err := refuseServing(ctx, env.Client.Kubernetes, csr)
			if err != nil {
				return fmt.Errorf("checking for which addresses %s wants a serving certificate: %w", csr.Spec.Username, err)
			}
			if refused != "" {
				klog.FromContext(ctx).Info("Leaving the request of a serving certificate to somebody else", "request", csr.Name, "user", csr.Spec.Username, "reason", refused)
				return nil
			}
		}
		next := csr.DeepCopy()
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: p.message,
		})
		if _, err := env.Client.Kubernetes.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, next, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("approving request %s: %w", csr.Name, err)
		}
		return nil
	}
	return nil
}

// mayCreate reports whether the requestor may create requests with the
// subresource. It asks the API server with a SubjectAccessReview.
func mayCreate(ctx context.Context, env *controller.Env, csr *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range csr.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := env.Client.Kubernetes.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "create", Subresource: subresource, Version: "*",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("checking whether %s may create %s: %w", csr.Spec.Username, subresource, err)
	}
	return review.Status.Allowed, nil
}
