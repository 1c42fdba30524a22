package registry

import (
	"strings"
	"unicode"
	"unicode/utf8"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/coracle-io/coracle/internal/resource"
)

// ManagedKind describes the versions in which a request identifies fields.
type ManagedKind struct {
	Resource    *resource.Resource
	Version     *resource.Version
	Subresource string
}

// FieldManagers tracks who owns which fields of an object
// (metadata.managedFields, KEP-555). Objects are hub objects; live is nil for
// an object that is being created and is never changed.
type FieldManagers interface {
	// Update records in obj which fields manager changed since live. obj may
	// have other managedFields than live if the client changed them. An error
	// refuses the write.
	Update(k ManagedKind, live, obj resource.Object, manager string) error
	// KeepTimes copies the times of live to the entries of obj that differ only
	// in their time, so that a write without changes is recognized.
	KeepTimes(live, obj resource.Object)
	// Apply merges a configuration (a JSON object) into live and returns the
	// result, or a Conflict that names the managers of contested fields.
	Apply(k ManagedKind, live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error)
}

// manage records the field ownership of a create, update or patch.
func (q *Request) manage(live, obj resource.Object, manager string) error {
	if m := q.Registry.Managers; m != nil {
		return m.Update(managedKind(q), live, obj, managerOrUserAgent(manager, q.UserAgent))
	}
	if live == nil {
		obj.SetManagedFields(nil)
	} else {
		obj.SetManagedFields(live.GetManagedFields())
	}
	return nil
}

func managedKind(q *Request) ManagedKind {
	return ManagedKind{q.Endpoint.Resource, q.Endpoint.Version, q.Info.Subresource}
}

// managerOrUserAgent returns the field manager of a write: the given one, or
// else the printable start of the first part of the user agent, up to the
// maximal length.
func managerOrUserAgent(given, userAgent string) string {
	if given != "" {
		return given
	}
	program, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, r := range program {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metav1validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}
