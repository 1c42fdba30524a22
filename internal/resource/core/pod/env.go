package pod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// envFields are the fields of a pod that environment variables can expose,
// sorted.
func envFields() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

// volumeFields are the fields of a pod that files can expose, sorted.
func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// isConvertible reports whether a field has a label by which upstream converts
// it between versions.
func isConvertible(name string) bool {
	switch name {
	case "spec.restartPolicy", "status.phase", "spec.schedulerName":
		return true
	}
	return slices.Contains(envFields(), name) || slices.Contains(volumeFields(), name)
}

// downwardResources are the resources of a container that the downward API can
// expose, sorted.
func downwardResources() []string {
	return []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}
}

// isMemoryDivisor reports whether amounts of memory, storage and huge pages can
// be exposed in this unit.
func isMemoryDivisor(value string) bool {
	switch value {
	case "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei":
		return true
	}
	return false
}

func (r *containerRules) validateEnv(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		v, at := &vars[i], path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, validators.Problems(at.Child("name"), v.Name, utilvalidation.IsRelaxedEnvVarName(v.Name))...)
		}
		errs = append(errs, r.validateEnvSource(v, at.Child("valueFrom"))...)
	}
	return errs
}

func (r *containerRules) validateEnvSource(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	from := v.ValueFrom
	if from == nil {
		return nil
	}
	var errs field.ErrorList
	sources := 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(from.FieldRef, envFields(), path.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, validateResourceFieldRef(from.ResourceFieldRef, false, path.Child("resourceFieldRef"))...)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, path.Child("configMapKeyRef"))...)
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, path.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
		errs = append(errs, r.validateFileKeyRef(from.FileKeyRef, path.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateFieldRef(ref *corev1.ObjectFieldSelector, allowed []string, path *field.Path) field.ErrorList {
	if ref.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	if ref.FieldPath == "" {
		return field.ErrorList{field.Required(path.Child("fieldPath"), "")}
	}
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(path.Child("fieldPath"), ref.FieldPath,
			fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", ref.APIVersion))}
	}
	if name, key, ok := splitSubscript(ref.FieldPath); ok {
		switch {
		case name != "metadata.annotations" && name != "metadata.labels":
			return field.ErrorList{field.Invalid(path.Child("fieldPath"), ref.FieldPath,
				fmt.Sprintf("error converting fieldPath: field label does not support subscript: %s", ref.FieldPath))}
		case name == "metadata.annotations":
			return validators.QualifiedName(path, strings.ToLower(key))
		default:
			return validators.QualifiedName(path, key)
		}
	}
	if !isConvertible(ref.FieldPath) {
		return field.ErrorList{field.Invalid(path.Child("fieldPath"), ref.FieldPath,
			fmt.Sprintf("error converting fieldPath: field label not supported: %s", ref.FieldPath))}
	}
	if !slices.Contains(allowed, ref.FieldPath) {
		return field.ErrorList{field.NotSupported(path.Child("fieldPath"), ref.FieldPath, allowed)}
	}
	return nil
}

// splitSubscript splits metadata.labels['key'] into the field and the key.
func splitSubscript(path string) (name, key string, ok bool) {
	rest, closed := strings.CutSuffix(path, "']")
	if !closed {
		return path, "", false
	}
	name, key, ok = strings.Cut(rest, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}

func validateResourceFieldRef(ref *corev1.ResourceFieldSelector, inVolume bool, path *field.Path) field.ErrorList {
	if inVolume && ref.ContainerName == "" {
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	}
	if ref.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	hugePages := strings.HasPrefix(ref.Resource, "requests."+corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(ref.Resource, "limits."+corev1.ResourceHugePagesPrefix)
	if !slices.Contains(downwardResources(), ref.Resource) && !hugePages {
		return field.ErrorList{field.NotSupported(path.Child("resource"), ref.Resource, downwardResources())}
	}
	return validateDivisor(ref.Resource, ref.Divisor, path)
}

func validateDivisor(name string, divisor resource.Quantity, path *field.Path) field.ErrorList {
	if divisor.IsZero() {
		return nil
	}
	value := divisor.String()
	at := path.Child("divisor")
	switch {
	case strings.HasSuffix(name, ".cpu"):
		if value != "1m" && value != "1" {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1m and 1 are supported with the cpu resource")}
		}
	case strings.HasSuffix(name, ".memory"):
		if !isMemoryDivisor(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource")}
		}
	case strings.HasSuffix(name, ".ephemeral-storage"):
		if !isMemoryDivisor(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource")}
		}
	default:
		if !isMemoryDivisor(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource")}
		}
	}
	return nil
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validators.Subdomain(path.Child("name"), name)...)
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, validators.Problems(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))...)
}

func (r *containerRules) validateFileKeyRef(ref *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const longestKey = 128
	if ref.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, validators.Problems(path.Child("key"), ref.Key, utilvalidation.IsRelaxedEnvVarName(ref.Key))...)
		if len(ref.Key) > longestKey {
			errs = append(errs, field.Invalid(path.Child("key"), ref.Key, utilvalidation.MaxLenError(longestKey)))
		}
	}
	switch source, ok := r.volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	case !ok:
		errs = append(errs, field.NotFound(path.Child("volumeName"), ref.VolumeName))
	case source.EmptyDir == nil:
		errs = append(errs, field.Invalid(path.Child("volumeName"), ref.VolumeName, "must reference an emptyDir volume"))
	}
	if ref.Path == "" {
		return append(errs, field.Required(path.Child("path"), ""))
	}
	return append(errs, validators.DescendingPath(path.Child("path"), ref.Path)...)
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		source, at := &sources[i], path.Index(i)
		if source.Prefix != "" {
			errs = append(errs, validators.Problems(at.Child("prefix"), source.Prefix, utilvalidation.IsRelaxedEnvVarName(source.Prefix))...)
		}
		count := 0
		reference := func(name, child string) {
			count++
			if name == "" {
				errs = append(errs, field.Required(at.Child(child, "name"), ""))
				return
			}
			errs = append(errs, validators.Problems(at.Child(child, "name"), name, validation.NameIsDNSSubdomain(name, true))...)
		}
		if source.ConfigMapRef != nil {
			reference(source.ConfigMapRef.Name, "configMapRef")
		}
		if source.SecretRef != nil {
			reference(source.SecretRef.Name, "secretRef")
		}
		if count == 0 {
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		} else if count > 1 {
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}
