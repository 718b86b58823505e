# SPDX-License-Identifier: Apache-2.0
nobase_dist_pkgdata_DATA += profiles/record.schema.json
