package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		if subjects[i].Kind == rbacv1.UserKind || subjects[i].Kind == rbacv1.GroupKind {
			defaults.Zero(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func bindingColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		resource.NameColumn(),
		resource.Column("Role", "string", rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"]),
		resource.AgeColumn(),
		resource.WideColumn("Users", "string", "Users in the roleBinding"),
		resource.WideColumn("Groups", "string", "Groups in the roleBinding"),
		resource.WideColumn("ServiceAccounts", "string", "ServiceAccounts in the roleBinding"),
	}
}

// subjectCells returns the names of the subjects of each kind, joined by
// commas.
func subjectCells(subjects []rbacv1.Subject) (users, groups, serviceAccounts string) {
	byKind := map[string][]string{}
	for _, s := range subjects {
		name := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			name = s.Namespace + "/" + s.Name
		}
		byKind[s.Kind] = append(byKind[s.Kind], name)
	}
	return strings.Join(byKind[rbacv1.UserKind], ", "), strings.Join(byKind[rbacv1.GroupKind], ", "),
		strings.Join(byKind[rbacv1.ServiceAccountKind], ", ")
}
