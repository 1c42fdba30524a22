package image

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// CheckPolicy returns an error for an unknown policy, for an allowlist that the policy
// does not use, or for one with a pattern that is none.
func CheckPolicy(policy kubeletconfig.ImagePullCredentialsVerificationPolicy, allowlist []string) error {
	switch policy {
	case kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.AlwaysVerify:
		if len(allowlist) > 0 {
			return fmt.Errorf("preloadedImagesVerificationAllowlist: only imagePullCredentialsVerificationPolicy %s has one, not %s", kubeletconfig.NeverVerifyAllowlistedImages, policy)
		}
	case kubeletconfig.NeverVerifyAllowlistedImages:
		for i, pattern := range allowlist {
			if err := checkPattern(pattern); err != nil {
				return fmt.Errorf("preloadedImagesVerificationAllowlist[%d] %q: %w", i, pattern, err)
			}
		}
	default:
		return fmt.Errorf("imagePullCredentialsVerificationPolicy: unknown policy %q: use %s, %s, %s or %s", policy,
			kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.NeverVerifyAllowlistedImages, kubeletconfig.AlwaysVerify)
	}
	return nil
}

// checkPattern returns what is wrong with a pattern of the allowlist. It would list no
// image, or others than whoever wrote it expects.
func checkPattern(pattern string) error {
	folder, wildcard := strings.CutSuffix(pattern, "/*")
	switch {
	case strings.TrimSpace(pattern) != pattern:
		return errors.New("it must not begin or end with a space")
	case strings.Contains(folder, "*"):
		return errors.New("only its end may be a wildcard, as in registry.example.com/folder/*")
	case wildcard && folder == "":
		return errors.New("a wildcard needs a registry before it")
	case wildcard:
		return nil
	}
	named, err := reference.ParseNormalizedNamed(pattern)
	if err != nil {
		return err
	}
	if !reference.IsNameOnly(named) {
		return errors.New("it must have neither a tag nor a digest")
	}
	return nil
}

// verifies reports whether the policy requires credentials.
func (r *records) verifies(repository string, pulledByKubelet bool) bool {
	switch r.Policy {
	case kubeletconfig.NeverVerify:
		return false
	case kubeletconfig.NeverVerifyPreloadedImages:
		return pulledByKubelet
	case kubeletconfig.NeverVerifyAllowlistedImages: // whoever has pulled them
		return !slices.ContainsFunc(r.Allowlist, func(pattern string) bool { return lists(pattern, repository) })
	}
	return true
}

// lists reports whether a pattern of the allowlist, a repository or a folder that
// ends in /*, is about the repository with the full name. A pattern may be as short
// as in a pod: alpine is docker.io/library/alpine, and example/* is
// docker.io/example/*.
func lists(pattern, name string) bool {
	folder, ok := strings.CutSuffix(pattern, "/*")
	if !ok {
		named, err := reference.ParseNormalizedNamed(pattern)
		return err == nil && reference.IsNameOnly(named) && named.Name() == name
	}
	if strings.HasPrefix(name, folder+"/") {
		return true
	}
	const some = "image"
	full, err := repository(folder + "/" + some)
	return err == nil && strings.HasPrefix(name, strings.TrimSuffix(full, some))
}
