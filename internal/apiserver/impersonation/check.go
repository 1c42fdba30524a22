package impersonation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// many is the number of groups or extra values from which all are first checked
// at once.
const many = 4

// mayImpersonate checks all permissions of a mode that the sender needs to
// impersonate the requested user.
func (g *Impersonator) mayImpersonate(ctx context.Context, m mode, requested *user.DefaultInfo, request *authorizer.AttributesRecord) error {
	if m != legacy {
		on := *request
		on.User = m.asker(request.User)
		on.Verb = "impersonate-on:" + string(m) + ":" + request.Verb
		if err := g.allowed(ctx, &on); err != nil {
			return err
		}
	}
	if err := g.allowed(ctx, m.ofName(requested.Name, request.User)); err != nil {
		return err
	}
	if requested.UID != "" {
		if err := g.allowed(ctx, m.of("uids", requested.UID, request.User)); err != nil {
			return err
		}
	}
	if err := g.mayUseGroups(ctx, m, requested.Groups, request.User); err != nil {
		return err
	}
	return g.mayUseExtra(ctx, m, requested.Extra, request.User)
}

// of returns the attributes for impersonating one item of a resource in
// authentication.k8s.io.
func (m mode) of(resource, name string, sender user.Info) *authorizer.AttributesRecord {
	group := authenticationv1.SchemeGroupVersion
	if m == legacy && (resource == "users" || resource == "groups" || resource == "serviceaccounts") {
		group = corev1.SchemeGroupVersion
	}
	return &authorizer.AttributesRecord{
		User: m.asker(sender), Verb: m.verb(), APIGroup: group.Group, APIVersion: group.Version, Resource: resource, Name: name, ResourceRequest: true,
	}
}

func (m mode) ofName(name string, sender user.Info) *authorizer.AttributesRecord {
	if namespace, account, ok := accountOf(name); ok {
		a := m.of("serviceaccounts", account, sender)
		a.Namespace = namespace
		return a
	}
	if node, ok := nodeOf(name); ok && m != legacy {
		if m == associatedNode {
			node = "*"
		}
		return m.of("nodes", node, sender)
	}
	return m.of("users", name, sender)
}

func (g *Impersonator) mayUseGroups(ctx context.Context, m mode, groups []string, sender user.Info) error {
	if m != legacy {
		if slices.Contains(groups, "") {
			return responsewriters.ForbiddenStatusError(m.of("groups", "", sender), "impersonating the empty string group is not allowed")
		}
		if slices.Contains(groups, user.SystemPrivilegedGroup) {
			return responsewriters.ForbiddenStatusError(m.of("groups", user.SystemPrivilegedGroup, sender), "impersonating the system:masters group is not allowed")
		}
		if len(groups) >= many && g.allowed(ctx, m.of("groups", "*", sender)) == nil {
			return nil
		}
	}
	for _, group := range groups {
		if err := g.allowed(ctx, m.of("groups", group, sender)); err != nil {
			return err
		}
	}
	return nil
}

func (g *Impersonator) mayUseExtra(ctx context.Context, m mode, extra map[string][]string, sender user.Info) error {
	if m != legacy {
		if err := checkExtra(extra); err != nil {
			return responsewriters.ForbiddenStatusError(m.of("userextras", "", sender), err.Error())
		}
		if manyValues(extra) && g.allowed(ctx, m.ofExtra("*", "*", sender)) == nil {
			return nil
		}
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		for _, value := range extra[key] {
			if err := g.allowed(ctx, m.ofExtra(key, value, sender)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m mode) ofExtra(key, value string, sender user.Info) *authorizer.AttributesRecord {
	a := m.of("userextras", value, sender)
	a.Subresource = key
	return a
}

func checkExtra(extra map[string][]string) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		switch {
		case key == "":
			return errors.New("impersonating the empty string key in extra is not allowed")
		case key != strings.ToLower(key):
			return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		case slices.Contains(extra[key], ""):
			return errors.New("impersonating the empty string value in extra is not allowed")
		}
		if errs := validation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key); len(errs) > 0 {
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", errs.ToAggregate())
		}
	}
	return nil
}

func manyValues(extra map[string][]string) bool {
	count := 0
	for _, values := range extra {
		count += len(values)
	}
	return len(extra) >= many || count >= many
}
