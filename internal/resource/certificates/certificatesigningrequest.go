package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
)

// CertificateSigningRequests is the resource certificatesigningrequests.
func CertificateSigningRequests() *resource.Resource {
	doc := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequest]{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Kind:         "CertificateSigningRequest",
		Plural:       "certificatesigningrequests",
		ShortNames:   []string{"csr"},
		Cluster:      true,
		CopyStatus: func(c, from *certificatesv1.CertificateSigningRequest) {
			c.Status = from.Status
		},
		PrepareForCreate: prepareSigningRequest,
		PrepareForUpdate: func(_ *resource.Request, c, old *certificatesv1.CertificateSigningRequest) { c.Spec = old.Spec },
		Validate:         validateSigningRequest,
		PrepareStatus:    prepareSigned,
		ValidateStatus:   validateSigned,
		ValidateName:     resource.NameIsPathSegment,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.AgeColumn(),
			resource.Column("SignerName", "string", doc["signerName"]),
			resource.Column("Requestor", "string", doc["request"]),
			resource.Column("RequestedDuration", "string", doc["expirationSeconds"]),
			resource.Column("Condition", "string", certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]),
		},
		Row: signingRequestRow,
		SelectableFields: func(c *certificatesv1.CertificateSigningRequest) fields.Set {
			return fields.Set{"spec.signerName": c.Spec.SignerName}
		},
		Fields: []string{"spec.signerName"},
		Subresources: []resource.SubresourceDefinition[certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequest]{{
			Name:             "approval",
			PrepareForUpdate: prepareApproval,
			ValidateUpdate:   validateApproval,
		}},
	})
}

// prepareApproval lets through what an approver writes: the conditions
// besides Failed.
func prepareApproval(r *resource.Request, obj, old *certificatesv1.CertificateSigningRequest) {
	conditions := obj.Status.Conditions
	obj.Spec = old.Spec
	obj.Status = old.Status
	obj.Status.Conditions = conditions
	dateConditions(r, obj, old)
}

// prepareSigned lets through what a signer writes. Decisions stay as they are
// unless their number changes, which is refused later.
func prepareSigned(r *resource.Request, obj, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		before, now := conditionsOf(old, t), conditionsOf(obj, t)
		if len(before) != len(now) {
			continue
		}
		for i := range now {
			before[i].DeepCopyInto(now[i])
		}
	}
	dateConditions(r, obj, old)
}

func conditionsOf(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []*certificatesv1.CertificateSigningRequestCondition {
	var found []*certificatesv1.CertificateSigningRequestCondition
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == t {
			found = append(found, &c.Status.Conditions[i])
		}
	}
	return found
}

// dateConditions fills in the times that conditions came without: an update's
// is now, and so is a transition's unless the condition was there with the
// same status.
func dateConditions(r *resource.Request, obj, old *certificatesv1.CertificateSigningRequest) {
	now := metav1.NewTime(r.Now)
	for i := range obj.Status.Conditions {
		c := &obj.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range old.Status.Conditions {
			if before.Type == c.Type && before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				c.LastTransitionTime = before.LastTransitionTime
				break
			}
		}
	}
}

func signingRequestRow(c *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	signer, requested := cell.None, cell.None
	if c.Spec.SignerName != "" {
		signer = c.Spec.SignerName
	}
	if c.Spec.ExpirationSeconds != nil {
		requested = duration.HumanDuration(time.Duration(*c.Spec.ExpirationSeconds) * time.Second)
	}
	return []any{
		c.Name, resource.Age(c.CreationTimestamp, now), signer, c.Spec.Username, requested, conditionCell(&c.Status),
	}
}

func conditionCell(s *certificatesv1.CertificateSigningRequestStatus) string {
	var approved, denied, failed bool
	for _, c := range s.Conditions {
		approved = approved || c.Type == certificatesv1.CertificateApproved
		denied = denied || c.Type == certificatesv1.CertificateDenied
		failed = failed || c.Type == certificatesv1.CertificateFailed
	}
	state := "Pending"
	switch {
	case denied:
		state = "Denied"
	case approved:
		state = "Approved"
	}
	if failed {
		state += ",Failed"
	}
	if len(s.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
