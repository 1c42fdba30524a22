package pod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// volumeRules checks a pod's volumes.
type volumeRules struct {
	*specContext
	valid map[string]*corev1.VolumeSource // the volumes without errors, by name
}

// validateVolumes checks the pod's volumes and collects the valid ones.
func (r *volumeRules) validateVolumes(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	r.valid = map[string]*corev1.VolumeSource{}
	generated := r.generatedClaims()
	for i := range r.spec.Volumes {
		v, at := &r.spec.Volumes[i], at.Index(i)
		found := r.validateVolumeSource(&v.VolumeSource, v.Name, at)
		if v.Name == "" {
			found = append(found, field.Required(at.Child("name"), ""))
		} else {
			found = append(found, validators.Label(at.Child("name"), v.Name)...)
		}
		if r.valid[v.Name] != nil {
			found = append(found, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(found) == 0 {
			r.valid[v.Name] = &v.VolumeSource
		} else {
			errs = append(errs, found...)
		}
		if claim := v.PersistentVolumeClaim; claim != nil && generated[claim.ClaimName] {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

// generatedClaims returns the names of the claims that are created for the
// pod's ephemeral volumes.
func (r *volumeRules) generatedClaims() map[string]bool {
	if r.metadata == nil || r.metadata.Name == "" {
		return nil
	}
	generated := map[string]bool{}
	for i := range r.spec.Volumes {
		if r.spec.Volumes[i].Ephemeral != nil {
			generated[r.metadata.Name+"-"+r.spec.Volumes[i].Name] = true
		}
	}
	return generated
}

// volumeOrder is the order in which upstream checks the volume kinds. The
// first one that is set is the volume's kind; any further one is an error.
func volumeOrder() []string {
	return []string{"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs",
		"iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
		"flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
		"storageos", "projected", "scaleIO", "csi", "ephemeral", "image"}
}

func (r *volumeRules) validateVolumeSource(v *corev1.VolumeSource, name string, at *field.Path) field.ErrorList {
	kinds := r.apiVolumeKinds(v)
	if hasStorageKind(v) {
		kinds = append(kinds, volume.StorageKinds(v)...)
	}
	kinds = slices.DeleteFunc(kinds, func(k volume.Kind) bool { return !k.Set })
	order := volumeOrder()
	slices.SortStableFunc(kinds, func(a, b volume.Kind) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
	errs := volume.ValidateSource(kinds, at)
	if v.Ephemeral != nil {
		errs = append(errs, r.validateEphemeralName(name, at)...)
	}
	return errs
}

// hasStorageKind reports whether one of the volume.StorageKinds may be set.
func hasStorageKind(v *corev1.VolumeSource) bool {
	rest := *v
	rest.EmptyDir, rest.HostPath, rest.GitRepo, rest.Secret, rest.PersistentVolumeClaim = nil, nil, nil, nil, nil
	rest.DownwardAPI, rest.ConfigMap, rest.Projected, rest.Ephemeral, rest.Image = nil, nil, nil, nil, nil
	return rest != (corev1.VolumeSource{})
}

// apiVolumeKinds returns the kinds that API objects or the node provide.
func (r *volumeRules) apiVolumeKinds(v *corev1.VolumeSource) []volume.Kind {
	return []volume.Kind{
		{Name: "emptyDir", Set: v.EmptyDir != nil, Validate: func(at *field.Path) field.ErrorList {
			if v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0 {
				return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
			}
			return nil
		}},
		{Name: "hostPath", Set: v.HostPath != nil, Validate: func(at *field.Path) field.ErrorList { return volume.ValidateHostPath(v.HostPath, at) }},
		{Name: "gitRepo", Set: v.GitRepo != nil, Validate: func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("repository"), v.GitRepo.Repository)
			return append(errs, validators.DescendingPath(at.Child("directory"), v.GitRepo.Directory)...)
		}},
		{Name: "secret", Set: v.Secret != nil, Validate: func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("secretName"), v.Secret.SecretName)
			return append(errs, validateFiles(v.Secret.DefaultMode, v.Secret.Items, at)...)
		}},
		{Name: "persistentVolumeClaim", Set: v.PersistentVolumeClaim != nil, Validate: func(at *field.Path) field.ErrorList {
			return validators.Required(at.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
		}},
		{Name: "downwardAPI", Set: v.DownwardAPI != nil, Validate: func(at *field.Path) field.ErrorList {
			errs := validateMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
			for i := range v.DownwardAPI.Items {
				errs = append(errs, validateDownwardFile(&v.DownwardAPI.Items[i], at)...)
			}
			return errs
		}},
		{Name: "configMap", Set: v.ConfigMap != nil, Validate: func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("name"), v.ConfigMap.Name)
			return append(errs, validateFiles(v.ConfigMap.DefaultMode, v.ConfigMap.Items, at)...)
		}},
		{Name: "projected", Set: v.Projected != nil, Validate: func(at *field.Path) field.ErrorList { return r.validateProjected(v.Projected, at) }},
		{Name: "ephemeral", Set: v.Ephemeral != nil, Validate: func(at *field.Path) field.ErrorList {
			return validateEphemeralClaim(v.Ephemeral, at)
		}},
		{Name: "image", Set: v.Image != nil, Validate: func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("reference"), v.Image.Reference)
			return append(errs, validatePullPolicy(v.Image.PullPolicy, at.Child("pullPolicy"))...)
		}},
	}
}

// validateEphemeralName checks the name of the claim that is created for an
// ephemeral volume.
func (r *volumeRules) validateEphemeralName(name string, at *field.Path) field.ErrorList {
	if r.metadata == nil || r.metadata.Name == "" || name == "" {
		return nil
	}
	claim := r.metadata.Name + "-" + name
	var errs field.ErrorList
	for _, msg := range utilvalidation.IsDNS1123Subdomain(claim) {
		errs = append(errs, field.Invalid(at.Child("name"), name, fmt.Sprintf("PVC name %q: %v", claim, msg)))
	}
	return errs
}

const fileModeRange = "must be a number between 0 and 0777 (octal), both inclusive"

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode == nil || *mode >= 0 && *mode <= 0o777 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *mode, fileModeRange)}
}

// validateFiles checks the mode of a volume's files and the keys and paths
// that they are made from.
func validateFiles(mode *int32, items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := validateMode(mode, at.Child("defaultMode"))
	for i := range items {
		errs = append(errs, validateKeyToPath(&items[i], at.Child("items").Index(i))...)
	}
	return errs
}

func validateKeyToPath(item *corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := validators.Required(at.Child("key"), item.Key)
	errs = append(errs, validators.Required(at.Child("path"), item.Path)...)
	errs = append(errs, validateFileName(item.Path, at.Child("path"))...)
	if item.Mode != nil && (*item.Mode > 0o777 || *item.Mode < 0) {
		errs = append(errs, field.Invalid(at.Child("mode"), *item.Mode, fileModeRange))
	}
	return errs
}

// validateFileName checks the path of a file that the kubelet writes. The
// kubelet reserves names that begin with two dots.
func validateFileName(name string, at *field.Path) field.ErrorList {
	errs := validators.DescendingPath(at, name)
	if strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../") {
		errs = append(errs, field.Invalid(at, name, "must not start with '..'"))
	}
	return errs
}

func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := validators.Required(at.Child("path"), f.Path)
	errs = append(errs, validateFileName(f.Path, at.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, volumeFields(), at.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceFieldRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	if f.Mode != nil && (*f.Mode > 0o777 || *f.Mode < 0) {
		errs = append(errs, field.Invalid(at.Child("mode"), *f.Mode, fileModeRange))
	}
	return errs
}
