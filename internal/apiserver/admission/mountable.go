package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/resource/core"
)

// restrictsSecrets reports whether the pods of an account may only use the
// secrets that it lists.
func restrictsSecrets(account *corev1.ServiceAccount) bool {
	return account.Annotations[core.MountableSecretsAnnotation] == "true"
}

// mountable is the set of secrets and image pull secrets that a service account
// lists.
type mountable struct {
	account        string
	secrets, pulls map[string]bool
}

func mountableOf(account *corev1.ServiceAccount) mountable {
	m := mountable{account: account.Name, secrets: map[string]bool{}, pulls: map[string]bool{}}
	for _, s := range account.Secrets {
		m.secrets[s.Name] = true
	}
	for _, s := range account.ImagePullSecrets {
		m.pulls[s.Name] = true
	}
	return m
}

// checkPod returns an error if the pod refers to a secret that the service
// account does not list, in a volume, an environment or an image pull.
func (m mountable) checkPod(s *corev1.PodSpec) error {
	for i := range s.Volumes {
		if secret := s.Volumes[i].Secret; secret != nil {
			if err := m.check("volume with", secret.SecretName); err != nil {
				return err
			}
		}
	}
	for _, list := range []struct {
		kind       string
		containers []corev1.Container
	}{{"init container", s.InitContainers}, {"container", s.Containers}} {
		for i := range list.containers {
			c := &list.containers[i]
			if err := m.checkEnvironment(list.kind+" "+c.Name, c.Env, c.EnvFrom); err != nil {
				return err
			}
		}
	}
	for i, s := range s.ImagePullSecrets {
		if !m.pulls[s.Name] {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, s.Name, m.account)
		}
	}
	return nil
}

// checkEphemeral checks the ephemeral containers like checkPod.
func (m mountable) checkEphemeral(s *corev1.PodSpec) error {
	for i := range s.EphemeralContainers {
		c := &s.EphemeralContainers[i]
		if err := m.checkEnvironment("ephemeral container "+c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	return nil
}

func (m mountable) checkEnvironment(container string, env []corev1.EnvVar, from []corev1.EnvFromSource) error {
	for _, v := range env {
		if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			if err := m.check(container+" with envVar "+v.Name+" referencing", v.ValueFrom.SecretKeyRef.Name); err != nil {
				return err
			}
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			if err := m.check(container+" with envFrom referencing", f.SecretRef.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m mountable) check(what, secret string) error {
	if m.secrets[secret] {
		return nil
	}
	return fmt.Errorf("%s secret.secretName=%q is not allowed because service account %s does not reference that secret", what, secret, m.account)
}
