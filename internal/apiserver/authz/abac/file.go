package abac

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/json"
)

const (
	group   = "abac.authorization.kubernetes.io/"
	current = group + "v1beta1"
	oldest  = group + "v0"
)

// Read reads the policies of a file. It skips empty lines and lines that begin
// with #. The error names every invalid line.
func Read(path string) (*Authorizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z := &Authorizer{}
	var errs []error
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := parse(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("error reading policy file %s, line %d: %s: %w", path, n, line, err))
			continue
		}
		z.policies = append(z.policies, p)
	}
	if err := scanner.Err(); err != nil {
		errs = append(errs, fmt.Errorf("error reading policy file %s: %w", path, err))
	}
	return z, errors.Join(errs...)
}

// parse parses a line of version v1beta1 or, without a version, of the older
// format. There, a policy without a subject applies to all authenticated users,
// and one without a resource to everything.
func parse(line string) (policy, error) {
	var versioned struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       policy `json:"spec"`
		policy
	}
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(line), &versioned); err != nil {
		return policy{}, err
	}
	if versioned.Kind != "" && versioned.Kind != "Policy" {
		return policy{}, fmt.Errorf("kind %q is not Policy", versioned.Kind)
	}
	switch versioned.APIVersion {
	case current:
		return versioned.Spec, nil
	case "", oldest:
	default:
		return policy{}, fmt.Errorf("apiVersion %q is not %s", versioned.APIVersion, current)
	}
	p := versioned.policy
	if p.User == "" && p.Group == "" {
		p.Group = user.AllAuthenticated
	}
	if p.Namespace == "" && p.Resource == "" {
		p.NonResourcePath = "*"
	}
	for _, property := range []*string{&p.Namespace, &p.Resource} {
		if *property == "" {
			*property = "*"
		}
	}
	p.APIGroup = "*"
	return p, nil
}
