// SPDX-License-Identifier: MIT
import * as stint from './index.cjs';
export * from './index.cjs';
export default stint;
