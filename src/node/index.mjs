// SPDX-License-Identifier: MIT
import stint from './index.cjs';

export const { open, version, express, ExpressStore, Table, Policy, Verdict, Group, Key } = stint;
export default stint;
