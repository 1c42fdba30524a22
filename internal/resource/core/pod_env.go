package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fields of a pod that its containers can see in their environment, in files,
// or in either under a key.
var (
	envFields = sets.New("metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	volumeFields    = sets.New("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
	keyedFields     = sets.New("metadata.annotations", "metadata.labels")
	convertedFields = envFields.Union(volumeFields).Union(sets.New("spec.restartPolicy", "status.phase",
		"spec.schedulerName"))
)

var downwardResources = sets.New("limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage")

// Units in which the resources can be given.
var (
	cpuDivisors    = sets.New("1m", "1")
	memoryDivisors = sets.New("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
)

func (r *podRules) validateEnv(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		v, at := &vars[i], path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Child("name"), v.Name, utilvalidation.IsRelaxedEnvVarName(v.Name))...)
		}
		errs = append(errs, r.validateEnvSource(v, at.Child("valueFrom"))...)
	}
	return errs
}

func (r *podRules) validateEnvSource(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	from := v.ValueFrom
	if from == nil {
		return nil
	}
	var errs field.ErrorList
	sources := 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(from.FieldRef, envFields, path.Child("fieldRef"))...)
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

func validateFieldRef(ref *corev1.ObjectFieldSelector, allowed sets.Set[string], path *field.Path) field.ErrorList {
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
		case !keyedFields.Has(name):
			return field.ErrorList{field.Invalid(path.Child("fieldPath"), ref.FieldPath,
				fmt.Sprintf("error converting fieldPath: field label does not support subscript: %s", ref.FieldPath))}
		case name == "metadata.annotations":
			return validateQualified(strings.ToLower(key), path)
		default:
			return validateQualified(key, path)
		}
	}
	if !convertedFields.Has(ref.FieldPath) {
		return field.ErrorList{field.Invalid(path.Child("fieldPath"), ref.FieldPath,
			fmt.Sprintf("error converting fieldPath: field label not supported: %s", ref.FieldPath))}
	}
	if !allowed.Has(ref.FieldPath) {
		return field.ErrorList{field.NotSupported(path.Child("fieldPath"), ref.FieldPath, sets.List(allowed))}
	}
	return nil
}

// splitSubscript takes metadata.labels['key'] apart.
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

func validateResourceFieldRef(ref *corev1.ResourceFieldSelector, volume bool, path *field.Path) field.ErrorList {
	if volume && ref.ContainerName == "" {
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	}
	if ref.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	hugePages := strings.HasPrefix(ref.Resource, "requests."+corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(ref.Resource, "limits."+corev1.ResourceHugePagesPrefix)
	if !downwardResources.Has(ref.Resource) && !hugePages {
		return field.ErrorList{field.NotSupported(path.Child("resource"), ref.Resource, sets.List(downwardResources))}
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
		if !cpuDivisors.Has(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1m and 1 are supported with the cpu resource")}
		}
	case strings.HasSuffix(name, ".memory"):
		if !memoryDivisors.Has(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource")}
		}
	case strings.HasSuffix(name, ".ephemeral-storage"):
		if !memoryDivisors.Has(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource")}
		}
	default:
		if !memoryDivisors.Has(value) {
			return field.ErrorList{field.Invalid(at, name, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource")}
		}
	}
	return nil
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, invalid(path.Child("name"), name, validation.NameIsDNSSubdomain(name, false))...)
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, invalid(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))...)
}

func (r *podRules) validateFileKeyRef(ref *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const longestKey = 128
	if ref.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, invalid(path.Child("key"), ref.Key, utilvalidation.IsRelaxedEnvVarName(ref.Key))...)
		if len(ref.Key) > longestKey {
			errs = append(errs, field.Invalid(path.Child("key"), ref.Key, utilvalidation.MaxLenError(longestKey)))
		}
	}
	switch volume, ok := r.volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	case !ok:
		errs = append(errs, field.NotFound(path.Child("volumeName"), ref.VolumeName))
	case volume.EmptyDir == nil:
		errs = append(errs, field.Invalid(path.Child("volumeName"), ref.VolumeName, "must reference an emptyDir volume"))
	}
	if ref.Path == "" {
		return append(errs, field.Required(path.Child("path"), ""))
	}
	return append(errs, validateDescendingPath(ref.Path, path.Child("path"))...)
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		source, at := &sources[i], path.Index(i)
		if source.Prefix != "" {
			errs = append(errs, invalid(at.Child("prefix"), source.Prefix, utilvalidation.IsRelaxedEnvVarName(source.Prefix))...)
		}
		count := 0
		reference := func(name, child string) {
			count++
			if name == "" {
				errs = append(errs, field.Required(at.Child(child, "name"), ""))
				return
			}
			errs = append(errs, invalid(at.Child(child, "name"), name, validation.NameIsDNSSubdomain(name, true))...)
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
